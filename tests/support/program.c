/* Runs the program by posix_spawn, with its output in files. */
#include "program.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_ARGUMENTS   64
#define MAX_ENVIRONMENT 256
#define STDOUT_FILE     "stdout.txt"
#define STDERR_FILE     "stderr.txt"

static char scratch[256];

void enter_scratch(void)
{
    const char *parent = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/tconv-test-XXXXXX", parent != NULL && *parent != '\0' ? parent : P_tmpdir);
    cr_assert_not_null(mkdtemp(scratch), "no directory %s", scratch);
    cr_assert_eq(chdir(scratch), 0);
}

void leave_scratch(void)
{
    DIR *directory = opendir(scratch);
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlink(entry->d_name);
    if (directory != NULL)
        closedir(directory);
    if (chdir("/") == 0)
        rmdir(scratch);
}

char *read_whole(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s cannot be opened", path);
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    rewind(file);
    char *data = calloc((size_t)length + 1, 1);
    cr_assert(data != NULL && fread(data, 1, (size_t)length, file) == (size_t)length);
    fclose(file);
    if (size != NULL)
        *size = (size_t)length;
    return data;
}

void write_whole(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file, "%s cannot be made", path);
    cr_assert_eq(fwrite(data, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
}

bool exists_like(const char *start)
{
    DIR *directory = opendir(".");
    const struct dirent *entry;
    bool found = false;
    cr_assert_not_null(directory);
    while ((entry = readdir(directory)) != NULL)
        found |= strncmp(entry->d_name, start, strlen(start)) == 0;
    closedir(directory);
    return found;
}

/* Copies the environment without the variables that the user of the tests has set for the library. */
static size_t clean_environment(char *environment[MAX_ENVIRONMENT], const char *const *settings)
{
    size_t count = 0;
    for (char **variable = environ; *variable != NULL && count < MAX_ENVIRONMENT - 1; variable++)
        if (strncmp(*variable, "TCONV_", strlen("TCONV_")) != 0)
            environment[count++] = *variable;
    for (; settings != NULL && *settings != NULL && count < MAX_ENVIRONMENT - 1; settings++)
        environment[count++] = (char *)*settings;
    environment[count] = NULL;
    return count;
}

/* Decides what the child's descriptor becomes: a file, closed, or the one at where. */
static void direct(posix_spawn_file_actions_t *actions, int descriptor, const char *file, const char *where)
{
    if (where == NULL)
        posix_spawn_file_actions_addopen(actions, descriptor, file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    else if (strcmp(where, CLOSED) == 0)
        posix_spawn_file_actions_addclose(actions, descriptor);
    else
        posix_spawn_file_actions_addopen(actions, descriptor, where, O_WRONLY, 0);
}

pid_t start_program(const char *out, const char *error, const char *const *arguments, const char *const *settings)
{
    const char *chosen = getenv("TCONV_PROGRAM"), *program = chosen != NULL ? chosen : TCONV_PROGRAM;
    char *vector[MAX_ARGUMENTS] = {(char *)program}, *environment[MAX_ENVIRONMENT];
    size_t count = 1;
    for (; arguments[count - 1] != NULL; count++) {
        cr_assert_lt(count, MAX_ARGUMENTS - 1);
        vector[count] = (char *)arguments[count - 1];
    }
    clean_environment(environment, settings);

    posix_spawn_file_actions_t actions;
    pid_t child;
    posix_spawn_file_actions_init(&actions);
    direct(&actions, STDOUT_FILENO, STDOUT_FILE, out);
    direct(&actions, STDERR_FILENO, STDERR_FILE, error);
    cr_assert_eq(posix_spawn(&child, program, &actions, NULL, vector, environment), 0, "%s cannot be run", program);
    posix_spawn_file_actions_destroy(&actions);
    return child;
}

static char *take_text(const char *path)
{
    char *text = access(path, F_OK) == 0 ? read_whole(path, NULL) : calloc(1, 1);
    unlink(path);
    return text;
}

struct program_result wait_program(pid_t child)
{
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return (struct program_result){code, take_text(STDOUT_FILE), take_text(STDERR_FILE)};
}

struct program_result run_program_to(const char *out, const char *error, const char *const *arguments,
                                     const char *const *settings)
{
    return wait_program(start_program(out, error, arguments, settings));
}

struct program_result run_program(const char *const *arguments, const char *const *settings)
{
    return run_program_to(NULL, NULL, arguments, settings);
}

void release_result(struct program_result *result)
{
    free(result->out);
    free(result->error);
}

void expect_code(const struct program_result *result, int code, const char *what)
{
    cr_assert_eq(result->code, code, "%s: exit code %d, not %d; stdout \"%s\", stderr \"%s\"", what, result->code, code,
                 result->out, result->error);
}

void expect_text(const char *where, const char *text, const char *what)
{
    cr_assert(strstr(where, text) != NULL, "%s: \"%s\" lacks \"%s\"", what, where, text);
}
