/*
 * A stand-in for ONNX Runtime: tables of the functions that the execution provider calls, on objects of the test's own. It
 * counts what is made and released, and can have any call that answers a status fail.
 */
#ifndef TCONV_TESTS_ORT_STANDIN_H
#define TCONV_TESTS_ORT_STANDIN_H

#include "../../adapters/onnxruntime/ort_abi.h"

#define STANDIN_MAX_RANK       5
#define STANDIN_MAX_ATTRIBUTES 4
#define STANDIN_MAX_KERNELS    8

/* A tensor's type; an extent of -1 is not known, and a rank of 0 is none. */
struct OrtTypeInfo {
    int type;
    size_t rank;
    int64_t dims[STANDIN_MAX_RANK];
};

/* A tensor; where data is NULL, ONNX Runtime has freed it. */
struct OrtValue {
    struct OrtTypeInfo info;
    void *data;
};

/* An attribute: integers, one integer or a text. */
struct OrtOpAttr {
    const char *name;
    const char *text;
    size_t count; /* of integers; 0 where there is a text */
    int64_t values[STANDIN_MAX_RANK];
};

/* A node, also as the information of a kernel. */
struct OrtNode {
    const char *name, *type, *domain;
    size_t input_count;
    struct OrtTypeInfo inputs[3];
    struct OrtOpAttr attributes[STANDIN_MAX_ATTRIBUTES];
    int is_taken; /* AddSingleNode was called */
};

struct OrtGraph {
    size_t count;
    struct OrtNode *nodes;
};

/* A run: its inputs, NULL for none, and the output, whose data the stand-in allocates. */
struct OrtKernelContext {
    struct OrtValue *inputs[3];
    struct OrtValue output;
};

/* The options of a session: the text of the option threads, NULL where it is not set. */
struct OrtSessionOptions {
    const char *threads;
};

/* The stand-in keeps here how it is to answer and what it has seen. */
struct standin {
    int version;        /* of the interface; GetApi answers NULL for later ones */
    const char *broken; /* the name of a function that answers something else than it should; NULL: none */
    bool has_no_ep_api; /* GetEpApi answers NULL */
    int fail_at;        /* which of the calls that answer a status fails, from 1 on; 0: none */
    int calls;          /* such calls so far */
    int live;           /* objects that were made and not released */
    int kernels;        /* kernels in the registry */
    int ranges[STANDIN_MAX_KERNELS][2]; /* their versions */
    ort_create_kernel *create_kernel;
    void *state; /* of create_kernel */
};

extern struct standin standin;

/* CreateEpFactories is handed this base. */
const OrtApiBase *standin_base(void);

/* Hardware of a kind, 0 for a CPU. */
const OrtHardwareDevice *standin_device(int kind);

/* Frees a status, as whoever gets one has to, and says whether there was one. message, where it is not NULL, has 256 bytes. */
bool standin_take_status(OrtStatus *status, char *message);

/* Releases devices that the provider made. */
void standin_release_devices(OrtEpDevice **devices, size_t count);

#endif
