/* What a plan is made for: options and environment as one, the backend, and the machine. */
#ifndef TCONV_DISPATCH_RESOLVE_H
#define TCONV_DISPATCH_RESOLVE_H

#include "../core/config.h"
#include "../core/impl.h"

/* Reads the caller's options and checks each by itself; NULL gives the defaults. */
tconv_status tconv_options_read(tconv_options *known, const tconv_options *options, tconv_issue *issue);

/* Fails where the operation has no implementation on any backend. */
tconv_status tconv_operation_check(const tconv_problem *problem, tconv_issue *issue);

/* Finds the backend that options and environment name (AUTO where neither does), and returns the environment in config.
 * Checks that the implementation that options may name is one of the operation's. */
tconv_status tconv_backend_named(tconv_op op, const tconv_options *options, tconv_config *config,
                                 tconv_backend *backend, tconv_issue *issue);

/* Finds the operation's implementation that options name; NULL where they name none. */
tconv_status tconv_implementation_named(tconv_op op, const tconv_options *options,
                                        const tconv_implementation **implementation, tconv_issue *issue);

/* Fills in the layer's target and the math that DEFAULT stands for, from options, environment and machine, or from the
 * GPU of that name in the cost model (machine is not NULL): what is planned for that one cannot be executed. */
tconv_status tconv_target_resolve(const tconv_options *options, const char *machine, tconv_layer *layer,
                                  tconv_config *config, tconv_issue *issue);

/* Makes the phase tables of both axes. They are to be released, also where this fails. */
tconv_status tconv_layer_create_phases(tconv_layer *layer, const tconv_allocator *allocator, tconv_issue *issue);
void tconv_layer_release_phases(tconv_layer *layer, const tconv_allocator *allocator);

#endif
