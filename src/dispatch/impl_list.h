/* Every implementation of this build by operation, in the order in which plans try them. */
#ifndef TCONV_DISPATCH_IMPL_LIST_H
#define TCONV_DISPATCH_IMPL_LIST_H

#include "../core/impl.h"

/* Returns the index-th implementation of the operation, best first, the reference last; NULL past the end. */
const tconv_implementation *tconv_implementation_at(tconv_op op, size_t index);

/* Returns the index-th name of the implementations of all operations, each once; NULL past the end. */
const char *tconv_implementation_name_at(size_t index);

/* Returns the operation's implementation of that name, or NULL. */
const tconv_implementation *tconv_implementation_find(tconv_op op, const char *name);

/* Whether the implementation takes the layer, by its list of dtypes and then by its supports, which may write
 * layer->choice. */
bool tconv_implementation_supports(const tconv_implementation *implementation, tconv_layer *layer,
                                   char reason[TCONV_REASON_SIZE]);

#endif
