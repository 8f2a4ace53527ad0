/* Output files by mkstemp and rename. */
#include "output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".XXXXXX"

/* mkstemp makes files that only the owner may read; this gives them the mode of any other new file. */
static bool set_usual_mode(int descriptor)
{
    mode_t mask = umask(0);
    umask(mask);
    return fchmod(descriptor, (mode_t)0666 & ~mask) == 0;
}

static bool open_temporary(cli_output *output)
{
    size_t length = strlen(output->path);
    output->temporary = malloc(length + sizeof SUFFIX);
    if (output->temporary == NULL)
        return false;
    memcpy(output->temporary, output->path, length);
    memcpy(output->temporary + length, SUFFIX, sizeof SUFFIX);
    int descriptor = mkstemp(output->temporary);
    if (descriptor >= 0) {
        if (set_usual_mode(descriptor) && (output->file = fdopen(descriptor, "wb")) != NULL)
            return true;
        int error = errno;
        close(descriptor);
        unlink(output->temporary);
        errno = error;
    }
    int error = errno;
    free(output->temporary);
    output->temporary = NULL;
    errno = error;
    return false;
}

bool cli_output_open(cli_output *output, const char *path)
{
    struct stat status;
    *output = (cli_output){.path = path};
    bool exists = stat(path, &status) == 0;
    if (exists && S_ISDIR(status.st_mode)) {
        errno = EISDIR;
        return false;
    }
    if (!exists || S_ISREG(status.st_mode))
        return open_temporary(output);
    output->file = fopen(path, "wb");
    return output->file != NULL;
}

bool cli_output_possible(const char *path)
{
    struct stat status;
    cli_output output;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
        return access(path, W_OK) == 0; /* to open a pipe could take for ever */
    if (!cli_output_open(&output, path))
        return false;
    cli_output_discard(&output);
    return true;
}

bool cli_output_commit(cli_output *output)
{
    bool written = ferror(output->file) == 0;
    int error = written ? 0 : EIO;
    if (fclose(output->file) != 0 && error == 0)
        error = errno;
    output->file = NULL;
    if (error == 0 && output->temporary != NULL && rename(output->temporary, output->path) != 0)
        error = errno;
    if (error != 0 && output->temporary != NULL)
        unlink(output->temporary);
    free(output->temporary);
    output->temporary = NULL;
    errno = error;
    return error == 0;
}

void cli_output_discard(cli_output *output)
{
    if (output->file != NULL)
        fclose(output->file);
    if (output->temporary != NULL)
        unlink(output->temporary);
    free(output->temporary);
    *output = (cli_output){0};
}
