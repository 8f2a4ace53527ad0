/* Writes output files by mkstemp and rename. */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define SUFFIX ".XXXXXX"
#define NAME_BYTES                                                                                                     \
    200 /* bytes of the file's own name that go into the temporary one: file systems take 255 and SUFFIX needs some */
#define MAX_LINKS  40 /* links in a row, as many as Linux follows */
#define LINK_BYTES 4096
#define WRITE_BITS (S_IWUSR | S_IWGRP | S_IWOTH)

/* ----------------------------------------------------------------------------------------------------- where it goes */

/* Returns "directory of path" / name, or name where name begins at the root. NULL without memory. */
static char *beside(const char *path, const char *name, size_t name_bytes, const char *suffix)
{
    const char *slash = name[0] == '/' ? NULL : strrchr(path, '/');
    const size_t directory_bytes = slash != NULL ? (size_t)(slash - path) + 1 : 0, suffix_bytes = strlen(suffix);
    char *made = malloc(directory_bytes + name_bytes + suffix_bytes + 1);
    if (made == NULL)
        return NULL;
    memcpy(made, path, directory_bytes);
    memcpy(made + directory_bytes, name, name_bytes);
    memcpy(made + directory_bytes + name_bytes, suffix, suffix_bytes + 1);
    return made;
}

/* Follows symbolic links one by one, since the last may point to a file that does not exist yet. NULL on failure, with
 * errno. */
static char *follow_links(const char *path)
{
    char *at = beside("", path, strlen(path), "");
    for (int links = 0; at != NULL; ++links) {
        char target[LINK_BYTES];
        const ssize_t length = readlink(at, target, sizeof target);
        if (length < 0) /* path is no link */
            return at;
        char *next = NULL;
        if (links == MAX_LINKS)
            errno = ELOOP;
        else if ((size_t)length == sizeof target)
            errno = ENAMETOOLONG;
        else
            next = beside(at, target, (size_t)length, "");
        free(at);
        at = next;
    }
    return NULL;
}

/* Whether a new file can replace the one that is there without losing anything of it. It cannot where that file has
 * other names, or permissions beside its mode. */
static bool may_be_replaced(const char *path, const struct stat *there)
{
    return there->st_nlink == 1 && getxattr(path, "system.posix_acl_access", NULL, 0) <= 0;
}

/* ------------------------------------------------------------------------------------------------- the temporary file */

/* The temporary file, which a signal that ends the program removes first. */
static char *volatile unfinished;

static void remove_unfinished(int number)
{
    if (unfinished != NULL)
        unlink(unfinished);
    raise(number); /* SA_RESETHAND: this ends the program */
}

static void watch_signals(void)
{
    static const int signals[] = {SIGHUP, SIGINT, SIGTERM, SIGPIPE};
    struct sigaction action = {.sa_handler = remove_unfinished, .sa_flags = (int)SA_RESETHAND}, old;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; ++i)
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(signals[i], &action, NULL);
}

/* mkstemp makes files that only the owner may read. This gives such a file the mode of any other new file, or the mode
 * and the owner of the file that it replaces. */
static bool set_owner_and_mode(int descriptor, const struct stat *replaced)
{
    if (replaced == NULL) {
        const mode_t mask = umask(0);
        umask(mask);
        return fchmod(descriptor, (mode_t)0666 & ~mask) == 0;
    }
    struct stat own;
    if (fstat(descriptor, &own) != 0)
        return false;
    if ((own.st_uid != replaced->st_uid || own.st_gid != replaced->st_gid) &&
        fchown(descriptor, replaced->st_uid, replaced->st_gid) != 0)
        return false;
    return fchmod(descriptor, replaced->st_mode & (mode_t)07777) == 0;
}

/* Removes the temporary file; errno stays as it was. */
static void drop_temporary(cli_output *output)
{
    const int error = errno;
    if (output->temporary != NULL)
        unlink(output->temporary);
    unfinished = NULL;
    free(output->temporary);
    output->temporary = NULL;
    errno = error;
}

/* Opens a temporary file. replaced is the file that is there, or NULL. */
static bool open_temporary(cli_output *output, const struct stat *replaced)
{
    const char *slash = strrchr(output->path, '/'), *name = slash != NULL ? slash + 1 : output->path;
    const size_t length = strlen(name);
    output->temporary = beside(output->path, name, length < NAME_BYTES ? length : NAME_BYTES, SUFFIX);
    if (output->temporary == NULL)
        return false;
    const int descriptor = mkstemp(output->temporary);
    if (descriptor < 0) {
        const int error = errno;
        free(output->temporary);
        output->temporary = NULL;
        errno = error;
        return false;
    }
    unfinished = output->temporary;
    watch_signals();
    if (set_owner_and_mode(descriptor, replaced) && (output->file = fdopen(descriptor, "wb")) != NULL)
        return true;
    const int error = errno;
    close(descriptor);
    errno = error;
    drop_temporary(output);
    return false;
}

/* ------------------------------------------------------------------------------------------------------- open and close */

static bool release(cli_output *output)
{
    const int error = errno;
    free(output->path);
    *output = (cli_output){0};
    errno = error;
    return false;
}

/* Looks at the file at the path. Returns false where it cannot be written, with errno. */
static bool look(const char *path, struct stat *there, bool *exists)
{
    *exists = stat(path, there) == 0;
    if (!*exists)
        return errno == ENOENT;
    if (S_ISDIR(there->st_mode))
        errno = EISDIR;
    else if (S_ISREG(there->st_mode) && (there->st_mode & WRITE_BITS) == 0)
        errno = EACCES;
    else
        return access(path, W_OK) == 0;
    return false;
}

bool cli_output_open(cli_output *output, const char *path)
{
    struct stat there, followed;
    bool exists;
    *output = (cli_output){0};
    if (!look(path, &there, &exists))
        return false;
    output->path = follow_links(path);
    if (output->path == NULL)
        return release(output);
    /* A link of /proc may lead to a file that has no name. */
    const bool named = exists && S_ISREG(there.st_mode) && stat(output->path, &followed) == 0 &&
                       followed.st_dev == there.st_dev && followed.st_ino == there.st_ino;
    const bool replace = !exists || (named && may_be_replaced(output->path, &there));
    if (replace && open_temporary(output, exists ? &there : NULL))
        return true;
    if (exists && (output->file = fopen(path, "wb")) != NULL)
        return true;
    return release(output);
}

bool cli_output_possible(const char *path)
{
    struct stat there;
    bool exists;
    cli_output output;
    if (!look(path, &there, &exists))
        return false;
    if (exists)
        return true; /* it can at least be written in place; opening a pipe could block for ever */
    if (!cli_output_open(&output, path))
        return false;
    cli_output_discard(&output);
    return true;
}

/* Whether two paths of files that are not there, symbolic links followed, are one name in one directory. */
static bool is_same_name(const char *a, const char *b)
{
    const char *const paths[2] = {a, b};
    const char *names[2];
    struct stat directories[2];
    bool found = true;
    for (int i = 0; i < 2; ++i) {
        const char *slash = strrchr(paths[i], '/');
        char *directory = beside(paths[i], ".", 1, "");
        names[i] = slash != NULL ? slash + 1 : paths[i];
        found = directory != NULL && stat(directory, &directories[i]) == 0 && found;
        free(directory);
    }
    return found && directories[0].st_dev == directories[1].st_dev && directories[0].st_ino == directories[1].st_ino &&
           strcmp(names[0], names[1]) == 0;
}

bool cli_output_is_same(const char *a, const char *b)
{
    struct stat first, second;
    const bool has_first = stat(a, &first) == 0, has_second = stat(b, &second) == 0;
    if (has_first && has_second)
        return S_ISREG(first.st_mode) && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
    if (has_first || has_second)
        return false;
    char *to_a = follow_links(a), *to_b = follow_links(b);
    const bool same = to_a != NULL && to_b != NULL && is_same_name(to_a, to_b);
    free(to_a);
    free(to_b);
    return same;
}

bool cli_output_commit(cli_output *output, bool written)
{
    int error = written ? 0 : errno;
    if (fclose(output->file) != 0 && error == 0)
        error = errno;
    if (error == 0 && output->temporary != NULL && rename(output->temporary, output->path) != 0)
        error = errno;
    if (error == 0) { /* there is nothing left to remove */
        unfinished = NULL;
        free(output->temporary);
        output->temporary = NULL;
    }
    errno = error;
    drop_temporary(output);
    release(output);
    return error == 0;
}

void cli_output_discard(cli_output *output)
{
    if (output->file != NULL)
        fclose(output->file);
    drop_temporary(output);
    release(output);
}

bool cli_output_is_stdout(const char *path)
{
    struct stat there, out;
    return stat(path, &there) == 0 && fstat(STDOUT_FILENO, &out) == 0 && !S_ISCHR(there.st_mode) &&
           there.st_dev == out.st_dev && there.st_ino == out.st_ino;
}
