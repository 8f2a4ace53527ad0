/* A layer of small integers with the right answer by the formula: every bit of the result has one right value. The
 * library is called through attack_library alone, so that a program can use this header and load the library itself. */
#ifndef TCONV_ATTACKS_ATTACK_LAYER_H
#define TCONV_ATTACKS_ATTACK_LAYER_H

#include "attack.h"
#include "tconv/tconv.h"

typedef struct attack_layer {
    tconv_desc desc;
    float *src_data, *weights_data, *bias_data, *dst_data; /* owned, as what follows */
    float *expected;
    void *workspace;
    size_t dst_count, workspace_size; /* more workspace than the layer needs */
    tconv_tensor src, weights, bias, dst;
} attack_layer;

/* Two images, kernel 3 x 2, stride 2, pad_top 1, two groups. SMALL takes microseconds; LARGE has work for several
 * threads and is computed in a few milliseconds. layer is used in place. Ends the program where memory is short. */
typedef enum attack_size { ATTACK_SMALL, ATTACK_LARGE } attack_size;
void attack_layer_init(attack_layer *layer, attack_size size);
void attack_layer_release(attack_layer *layer);

/* Fills dst with a number that no output has. */
void attack_layer_clear(attack_layer *layer);

/* Whether dst is the right answer bit for bit, or still as attack_layer_clear left it. */
bool attack_layer_is_right(const attack_layer *layer);
bool attack_layer_is_untouched(const attack_layer *layer);

/* The functions of the library that a layer needs, for programs that load it themselves. */
typedef struct attack_library {
    tconv_status (*validate)(const tconv_desc *desc, tconv_issue *issue);
    tconv_status (*options_init_sized)(tconv_options *options, size_t struct_size);
    tconv_status (*plan_create)(const tconv_desc *desc, const tconv_options *options, tconv_plan **plan,
                                tconv_issue *issue);
    tconv_status (*plan_pack_weights)(const tconv_plan *plan, const tconv_tensor *weights, void *stream,
                                      tconv_plan **packed, tconv_issue *issue);
    tconv_status (*plan_execute)(const tconv_plan *plan, const tconv_tensor *src, const tconv_tensor *weights,
                                 const tconv_tensor *bias, const tconv_tensor *dst, void *workspace,
                                 size_t workspace_size, void *stream);
    void (*plan_destroy)(tconv_plan *plan);
    tconv_status (*conv_transpose2d)(const tconv_desc *desc, const tconv_options *options, const tconv_tensor *src,
                                     const tconv_tensor *weights, const tconv_tensor *bias, const tconv_tensor *dst,
                                     tconv_issue *issue);
    tconv_status (*plan_describe)(const tconv_plan *plan, char *text, size_t capacity, size_t *length);
    tconv_status (*system_info)(tconv_text_format format, char *text, size_t capacity, size_t *length);
    void (*last_issue)(tconv_issue *issue);
} attack_library;

/* The functions as the program is linked to them; a macro, so that an unlinked program has no reference to them. */
#define ATTACK_LINKED_LIBRARY                                                                                          \
    ((attack_library){tconv_validate, tconv_options_init_sized, tconv_plan_create, tconv_plan_pack_weights,            \
                      tconv_plan_execute, tconv_plan_destroy, tconv_conv_transpose2d, tconv_plan_describe,             \
                      tconv_system_info, tconv_last_issue})

/* Finds the functions by dlsym in handle, which dlopen gave. Returns false where one is missing. */
bool attack_library_find(attack_library *library, void *handle);

/* Makes a plan, executes it, packs, executes packed, makes the one-shot call and destroys, with options (NULL: the
 * defaults). Expects that all succeed and are right. what names the attack. */
void attack_layer_expect_right(attack_layer *layer, const attack_library *library, const tconv_options *options,
                               const char *what);

#endif
