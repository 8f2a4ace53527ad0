/*
 * Unusual descriptors: 0 to 2 closed when the process begins, so that a file of the caller's gets number 2; a full disk
 * and a limit of file sizes behind stderr; no descriptor left at all. The library's verbose lines never go into a file
 * that is not the process's stderr, a line that cannot be written makes no call fail, and results are right.
 *
 *     attack_descriptors PROGRAM     (the tconv program; its output files are held to the same)
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attack_layer.h"

#define SECONDS 20
#define WRONG   3 /* exit code of a child that has no stdout */

static char scratch[] = "/tmp/tconv-attack-XXXXXX";

/* ------------------------------------------------------------------------------------------------- closed descriptors */

static void close_standard(void *unused)
{
    (void)unused;
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    close(STDERR_FILENO);
}

/* Opens files of its own, which get 0 to 2, and uses the library. Then the files must hold only what this child wrote.
 * The exit code tells the outcome. */
static int child_with_files(const char *directory)
{
    static attack_layer layer;
    struct stat status;
    int files[3];
    if (chdir(directory) != 0)
        return WRONG;
    for (int i = 0; i < 3; i++) {
        char name[] = "file0";
        name[4] = (char)('0' + i);
        files[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (files[i] != i)
            return WRONG; /* they were not closed */
    }
    tconv_options options;
    tconv_options_init(&options);
    options.verbose = 2;
    attack_layer_init(&layer, ATTACK_SMALL);
    tconv_plan *plan = NULL;
    if (tconv_plan_create(&layer.desc, &options, &plan, NULL) != TCONV_SUCCESS ||
        tconv_plan_execute(plan, &layer.src, &layer.weights, &layer.bias, &layer.dst, layer.workspace,
                           layer.workspace_size, NULL) != TCONV_SUCCESS ||
        !attack_layer_is_right(&layer))
        return WRONG;
    tconv_plan_destroy(plan);
    for (int i = 0; i < 3; i++)
        if (fstat(files[i], &status) != 0 || status.st_size != 0)
            return 10 + i;
    return 0;
}

static void attack_closed(char **argv)
{
    const char *arguments[] = {argv[0], "files", scratch, NULL};
    const char *settings[] = {"TCONV_VERBOSE=2", NULL};
    attack_program program = {
        .arguments = arguments, .settings = settings, .prepare = close_standard, .seconds = SECONDS};
    attack_outcome outcome = attack_run(&program, NULL, 0);
    EXPECT(outcome.signal == 0 && outcome.code != 12, "a verbose line was written into a file of the caller's");
    EXPECT(outcome.signal == 0 && (outcome.code == 0 || outcome.code == 12), "descriptors 0 to 2 closed: %s",
           attack_outcome_text(outcome));
}

/* ---------------------------------------------------------------------------------------------------------- the program */

static void write_numbers(const char *name, const char *shape, int count)
{
    FILE *file = fopen(name, "wb");
    float number = 1;
    if (file == NULL)
        return;
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file);
    fprintf(file, "%-117s\n", shape);
    for (int i = 0; i < count; i++)
        fwrite(&number, sizeof number, 1, file);
    fclose(file);
}

static long size_of(const char *name)
{
    struct stat status;
    return stat(name, &status) == 0 ? (long)status.st_size : -1;
}

/* Runs tconv run with 0 to 2 closed: its output file must not get a number that something prints to. */
static void attack_program_closed(char **argv)
{
    const char *arguments[] = {argv[1],    "run",   "--backend", "cpu",   "--input", "x.npy",
                               "--weight", "w.npy", "--output",  "y.npy", NULL};
    const char *settings[] = {"TCONV_VERBOSE=2", NULL};
    attack_program program = {.arguments = arguments, .settings = settings, .seconds = SECONDS};
    static char output[4096];
    write_numbers("x.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4), }", 24);
    write_numbers("w.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 2, 2), }", 24);
    attack_expect_success(attack_run(&program, output, sizeof output), "tconv run");
    long size = size_of("y.npy");
    EXPECT(size == 128 + 60 * 4, "tconv run writes %ld bytes", size);
    unlink("y.npy");
    program.prepare = close_standard;
    attack_outcome outcome = attack_run(&program, NULL, 0);
    EXPECT(outcome.signal == 0 && !outcome.timed_out, "tconv run, 0 to 2 closed: %s", attack_outcome_text(outcome));
    EXPECT(size_of("y.npy") == size || (outcome.code != 0 && size_of("y.npy") == -1),
           "tconv run, 0 to 2 closed: %s and %ld bytes of %ld", attack_outcome_text(outcome), size_of("y.npy"), size);
    unlink("x.npy");
    unlink("w.npy");
    unlink("y.npy");
}

/* --------------------------------------------------------------------------------------------- stderr that takes nothing */

/* Runs with verbose lines on a stderr that takes nothing: the lines are lost, and no signal that the library could
 * avoid ends the process. */
static int child_verbose(void)
{
    static attack_layer layer;
    tconv_options options;
    tconv_options_init(&options);
    options.verbose = 2;
    attack_layer_init(&layer, ATTACK_SMALL);
    attack_layer_expect_right(&layer, &ATTACK_LINKED_LIBRARY, &options, "with a stderr that takes nothing");
    return attack_end();
}

static void full_disk(void *unused)
{
    (void)unused;
    int full = open("/dev/full", O_WRONLY);
    dup2(full, STDERR_FILENO);
}

/* Limits the size of files. The caller ignores SIGXFSZ, as a program that sets such a limit does. */
static void small_file(void *unused)
{
    (void)unused;
    const struct rlimit none = {0, 0};
    int file = open("grows", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(file, STDERR_FILENO);
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &none);
}

/* Prepares a pipe that nobody reads as stderr, with SIGPIPE as in a new process. */
static void broken_pipe(void *unused)
{
    (void)unused;
    int ends[2];
    if (pipe(ends) != 0)
        _exit(EXIT_FAILURE);
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
}

/* Allows three descriptors, all in use: no file can be opened, nor any of /proc and /sys. */
static void no_descriptors(void *unused)
{
    (void)unused;
    const struct rlimit three = {3, 3};
    setrlimit(RLIMIT_NOFILE, &three);
}

static void attack_stderr(char **argv, const char *what, const char *child, void (*prepare)(void *))
{
    const char *arguments[] = {argv[0], child, NULL};
    attack_program program = {.arguments = arguments, .prepare = prepare, .seconds = SECONDS};
    attack_expect_success(attack_run(&program, NULL, 0), what);
}

/* Uses the library without free descriptors. The limit is set when the program runs, because the dynamic linker needs
 * descriptors. */
static int child_without_descriptors(void)
{
    static attack_layer layer;
    static char text[1 << 16];
    no_descriptors(NULL);
    attack_layer_init(&layer, ATTACK_LARGE);
    for (int32_t threads = 0; threads < 3; threads++) {
        tconv_options options;
        tconv_options_init(&options);
        options.threads = threads;
        attack_layer_expect_right(&layer, &ATTACK_LINKED_LIBRARY, &options, "without descriptors");
    }
    EXPECT(tconv_system_info(TCONV_TEXT_JSON, text, sizeof text, NULL) == TCONV_SUCCESS, "system_info fails");
    return attack_end();
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "files") == 0)
        return child_with_files(argv[2]);
    if (argc == 2 && strcmp(argv[1], "verbose") == 0)
        return child_verbose();
    if (argc == 2 && strcmp(argv[1], "none") == 0)
        return child_without_descriptors();
    if (argc != 2 || mkdtemp(scratch) == NULL || chdir(scratch) != 0) {
        printf("usage: %s PROGRAM\n", argv[0]);
        return 2;
    }
    attack_closed(argv);
    attack_program_closed(argv);
    attack_stderr(argv, "stderr on a full disk", "verbose", full_disk);
    attack_stderr(argv, "stderr at the limit for files", "verbose", small_file);
    attack_stderr(argv, "stderr a broken pipe", "verbose", broken_pipe);
    attack_stderr(argv, "no descriptor to be had", "none", NULL);
    const char *const names[] = {"file0", "file1", "file2", "grows"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(names[i]);
    if (chdir("/") == 0)
        rmdir(scratch);
    return attack_end();
}
