/*
 * The functions in the stand-in's tables, by their names in ONNX Runtime after fake_, and what they share.
 */
#ifndef TCONV_TESTS_ORT_STANDIN_FUNCTIONS_H
#define TCONV_TESTS_ORT_STANDIN_FUNCTIONS_H

#include "standin.h"

#define DECLARE(place, result, name, parameters) result fake_##name parameters;
ORT_API_FUNCTIONS(DECLARE)
ORT_EP_API_FUNCTIONS(DECLARE)
#undef DECLARE

/* An object of zeros that is counted, for standin_drop. */
void *standin_make(size_t size);

/* Frees an object; NULL is allowed. */
void standin_drop(void *object);

/* Whether the function of this name is to answer something else than it should. */
bool standin_is_broken(const char *name);

/* A status, for standin_drop. */
OrtStatus *standin_status(int code, const char *message);

/* Counts a call that answers a status: NULL, or the status where the call is the one that fails. */
OrtStatus *standin_enter(const char *name);

#endif
