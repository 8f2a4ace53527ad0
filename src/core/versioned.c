/* Structs that grow: struct_size says how much of the struct the caller knows. Fields that an older caller does not
 * know have their defaults; fields that a newer caller knows and this library does not must be zero. */
#include <stdio.h>
#include <string.h>

#include "problem.h"
#include "status.h"

/* The most bytes of a struct that are read. Every future version fits, and a struct_size that was never written, which
 * is likely to be larger, is refused before memory behind the struct is read or cleared. */
#define MAX_STRUCT_SIZE 4096

/* Checks the size of a struct of the caller. name is "desc", "options" or "step" for a struct that must be filled already: the
 * issue of a wrong size then asks whether it was. name is NULL for one that is to be filled. */
static tconv_status check_size(size_t size, size_t minimum, const char *name, tconv_issue *issue)
{
    char question[64] = "";
    if (size >= minimum && size <= MAX_STRUCT_SIZE)
        return TCONV_SUCCESS;
    if (name != NULL && strcmp(name, "operands") != 0) /* which no function fills */
        snprintf(question, sizeof question, "; was the %s filled by tconv_%s_init?", name, name);
    return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "struct_size", "struct_size = %zu: must be from %zu to %d%s",
                      size, minimum, MAX_STRUCT_SIZE, question);
}

/* Fills the caller's struct of struct_size bytes with the defaults, which this library knows for known_size bytes.
 * Their struct_size is the caller's. The bytes that only a newer caller knows become 0. name is "desc",
 * "options" or "step". */
static tconv_status init_versioned(void *caller, size_t struct_size, const void *defaults, size_t known_size,
                                   const char *name)
{
    tconv_issue found = {TCONV_SUCCESS, "", ""};
    if (caller == NULL) {
        tconv_fail(&found, TCONV_ERROR_INVALID_ARGUMENT, name, "%s = NULL: must point to a tconv_%s", name, name);
    } else if (check_size(struct_size, sizeof struct_size, NULL, &found) == TCONV_SUCCESS) {
        memset(caller, 0, struct_size);
        memcpy(caller, defaults, struct_size < known_size ? struct_size : known_size);
    }
    return tconv_report(&found, NULL);
}

tconv_status tconv_desc_init_sized(tconv_desc *desc, size_t struct_size)
{
    tconv_desc defaults;
    memset(&defaults, 0, sizeof defaults);
    defaults.struct_size = struct_size;
    defaults.batch = 1;
    defaults.stride_h = defaults.stride_w = 1;
    defaults.dilation_h = defaults.dilation_w = 1;
    defaults.in_d = defaults.kernel_d = defaults.stride_d = defaults.dilation_d = 1;
    defaults.groups = 1;
    return init_versioned(desc, struct_size, &defaults, sizeof defaults, "desc");
}

tconv_status tconv_step_init_sized(tconv_step *step, size_t struct_size)
{
    tconv_step defaults;
    memset(&defaults, 0, sizeof defaults);
    defaults.struct_size = struct_size;
    return init_versioned(step, struct_size, &defaults, sizeof defaults, "step");
}

tconv_status tconv_options_init_sized(tconv_options *options, size_t struct_size)
{
    tconv_options defaults;
    memset(&defaults, 0, sizeof defaults);
    defaults.struct_size = struct_size;
    defaults.device = -1;
    return init_versioned(options, struct_size, &defaults, sizeof defaults, "options");
}

tconv_status tconv_read_versioned(void *known, size_t known_size, const void *caller, size_t minimum, const char *name,
                                  tconv_issue *issue)
{
    size_t size;
    tconv_status status;
    memcpy(&size, caller, sizeof size);
    if ((status = check_size(size, minimum, name, issue)))
        return status;
    for (size_t i = known_size; i < size; i++)
        if (((const unsigned char *)caller)[i] != 0)
            return tconv_fail(issue, TCONV_ERROR_INVALID_ARGUMENT, "struct_size",
                              "struct_size = %zu: this library knows %zu bytes of the %s, and what follows must be 0",
                              size, known_size, name);
    memcpy(known, caller, size < known_size ? size : known_size);
    memcpy(known, &known_size, sizeof known_size);
    return TCONV_SUCCESS;
}
