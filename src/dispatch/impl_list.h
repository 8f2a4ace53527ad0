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

/* Has the implementation plan the layer, unless it does not take its dtype; made and planned need not be zeroed, but for
 * planned->work. */
tconv_status tconv_implementation_plan(const tconv_implementation *implementation, const tconv_layer *layer, void *made,
                                       tconv_planned *planned, tconv_issue *issue);

/* Returns the most bytes that a plan of any implementation of the operation and backend takes. */
size_t tconv_implementation_most_bytes(tconv_op op, tconv_backend backend);

#endif
