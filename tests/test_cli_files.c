/* The files that the tconv program writes: over existing files, links and devices, and with a stdout that takes
 * nothing. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/npy_file.h"
#include "support/program.h"

TestSuite(cli_files, .init = enter_scratch, .fini = leave_scratch);

#define RUN_TO(path) "run", "--input", "x.npy", "--weight", "w.npy", "--output", (path)
#define SHAPE        "(1, 3, 4, 5)" /* shape of the result */
#define DATA_BYTES   (3 * 4 * 5 * sizeof(float))

static mode_t mode_of(const char *path)
{
    struct stat status;
    cr_assert_eq(stat(path, &status), 0, "%s is not there", path);
    return status.st_mode & 07777;
}

/* Expects that the file holds the whole result, and that nothing else was left. */
static void expect_result(const char *path, const char *what)
{
    size_t bytes;
    free(read_npy(path, SHAPE, &bytes));
    cr_assert_eq(bytes, DATA_BYTES, "%s: %zu bytes", what, bytes);
    cr_assert(!exists_like("y.npy.") && !exists_like("target.npy."), "%s: a temporary file is left", what);
}

static void run_to(const char *path, const char *what)
{
    struct program_result result = PROGRAM(RUN_TO(path));
    expect_code(&result, 0, what);
    release_result(&result);
}

/* --------------------------------------------------------------------------------------------------------------- files */

Test(cli_files, a_replaced_file_keeps_its_mode)
{
    static const mode_t modes[] = {0600, 0640, 0666, 0200, 0755, 02660};
    write_layer();
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        char what[16];
        snprintf(what, sizeof what, "mode %o", (unsigned)modes[i]);
        write_whole("y.npy", "old", 3);
        cr_assert_eq(chmod("y.npy", modes[i]), 0);
        run_to("y.npy", what);
        cr_assert_eq(mode_of("y.npy"), modes[i], "%s became %o", what, (unsigned)mode_of("y.npy"));
        cr_assert_eq(chmod("y.npy", 0600), 0);
        expect_result("y.npy", what);
        unlink("y.npy");
    }
}

Test(cli_files, a_new_file_has_the_mode_of_any_other)
{
    static const mode_t masks[] = {022, 077, 0};
    write_layer();
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        const mode_t before = umask(masks[i]);
        run_to("y.npy", "a new file");
        umask(before);
        cr_assert_eq(mode_of("y.npy"), (mode_t)0666 & ~masks[i]);
        expect_result("y.npy", "a new file");
        unlink("y.npy");
    }
}

Test(cli_files, a_replaced_file_keeps_its_owner)
{
    struct stat status;
    if (geteuid() != 0) {
        leave_scratch(); /* a skipped test does not clean up */
        cr_skip_test("skipped: this needs root");
    }
    write_layer();
    write_whole("y.npy", "old", 3);
    cr_assert_eq(chown("y.npy", 12345, 23456), 0);
    cr_assert_eq(chmod("y.npy", 0640), 0);
    run_to("y.npy", "another's file");
    cr_assert_eq(stat("y.npy", &status), 0);
    cr_assert(status.st_uid == 12345 && status.st_gid == 23456, "%u:%u", (unsigned)status.st_uid,
              (unsigned)status.st_gid);
    cr_assert_eq(status.st_mode & 07777, 0640);
    expect_result("y.npy", "another's file");
}

static void expect_link(const char *path, const char *to)
{
    char target[64] = "";
    cr_assert(readlink(path, target, sizeof target - 1) > 0, "%s is no link any more", path);
    cr_assert_str_eq(target, to);
}

Test(cli_files, a_symbolic_link_is_written_through)
{
    char here[300], target[320];
    write_layer();
    write_whole("target.npy", "old", 3);
    cr_assert_eq(chmod("target.npy", 0600), 0);
    cr_assert_eq(symlink("target.npy", "near"), 0);
    cr_assert_eq(symlink("near", "far"), 0); /* a link to a link */
    run_to("far", "a link to a link");
    expect_link("near", "target.npy");
    expect_link("far", "near");
    expect_result("target.npy", "a link to a link");
    cr_assert_eq(mode_of("target.npy"), 0600);

    cr_assert_eq(unlink("target.npy"), 0); /* now the links lead to no file */
    run_to("far", "a dangling link");
    expect_link("far", "near");
    expect_result("target.npy", "a dangling link");

    /* The program is run from another directory, and by its whole path. */
    cr_assert_eq(mkdir("inner", 0700), 0);
    cr_assert_eq(symlink("../target.npy", "inner/link"), 0);
    cr_assert_eq(unlink("target.npy"), 0);
    run_to("inner/link", "a link in another directory");
    expect_result("target.npy", "a link in another directory");
    cr_assert_eq(unlink("inner/link"), 0);
    cr_assert_not_null(getcwd(here, sizeof here));
    snprintf(target, sizeof target, "%s/target.npy", here);
    cr_assert_eq(symlink(target, "inner/link"), 0);
    write_whole("target.npy", "old", 3);
    run_to("inner/link", "a link by its whole path");
    expect_result("target.npy", "a link by its whole path");
    cr_assert_eq(unlink("inner/link"), 0);
    cr_assert_eq(rmdir("inner"), 0);
}

Test(cli_files, links_in_a_circle_are_an_error)
{
    write_layer();
    cr_assert_eq(symlink("there", "here"), 0);
    cr_assert_eq(symlink("here", "there"), 0);
    struct program_result result = PROGRAM(RUN_TO("here"));
    expect_code(&result, 2, "a circle");
    expect_text(result.error, "--output here: cannot be made: ", "a circle");
    expect_link("here", "there");
    release_result(&result);
}

Test(cli_files, every_name_of_a_file_sees_the_result)
{
    write_layer();
    write_whole("y.npy", "old", 3);
    cr_assert_eq(link("y.npy", "other.npy"), 0);
    run_to("y.npy", "a file with two names");
    expect_result("y.npy", "a file with two names");
    expect_result("other.npy", "a file with two names");
}

Test(cli_files, the_longest_name_is_written)
{
    char name[256];
    write_layer();
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (int i = 0; i < 2; i++) { /* a new file, then one that is there */
        run_to(name, "a name of 255 bytes");
        expect_result(name, "a name of 255 bytes");
    }
}

Test(cli_files, a_read_only_file_is_refused)
{
    static const char *const paths[] = {"y.npy", "link"};
    write_layer();
    write_whole("y.npy", "old", 3);
    cr_assert_eq(symlink("y.npy", "link"), 0);
    cr_assert_eq(chmod("y.npy", 0444), 0);
    for (size_t i = 0; i < 2; i++) {
        struct program_result result = PROGRAM(RUN_TO(paths[i]));
        expect_code(&result, 2, "a read-only file");
        expect_text(result.error, "cannot be made: Permission denied", "a read-only file");
        char *kept = read_whole("y.npy", NULL);
        cr_assert_str_eq(kept, "old");
        cr_assert(!exists_like("y.npy."));
        free(kept);
        release_result(&result);
    }
    struct program_result result = PROGRAM("bench", "--problem", "ci=1 h=1 w=1 co=1 k=1", "--json", "y.npy");
    expect_code(&result, 2, "bench");
    expect_text(result.error, "--json y.npy: cannot be made: Permission denied", "bench");
    release_result(&result);
}

/* ------------------------------------------------------------------------------------------------ devices, pipes, limits */

static void *read_pipe(void *path)
{
    return fopen(path, "rb");
}

Test(cli_files, devices_and_pipes_are_written_as_they_are)
{
    struct stat status;
    unsigned char start[6];
    pthread_t reader;
    void *stream;
    write_layer();
    run_to("/dev/null", "/dev/null");
    cr_assert(stat("/dev/null", &status) == 0 && S_ISCHR(status.st_mode));

    cr_assert_eq(mkfifo("pipe", 0600), 0);
    cr_assert_eq(pthread_create(&reader, NULL, read_pipe, "pipe"), 0);
    pid_t child = start_program(NULL, NULL, (const char *const[]){RUN_TO("pipe"), NULL}, NULL);
    cr_assert_eq(pthread_join(reader, &stream), 0);
    cr_assert_not_null(stream);
    cr_assert_eq(fread(start, 1, sizeof start, stream), sizeof start);
    cr_assert_eq(memcmp(start, "\x93NUMPY", sizeof start), 0);
    struct program_result result = wait_program(child); /* the rest fits in the pipe */
    expect_code(&result, 0, "a pipe");
    fclose(stream);
    release_result(&result);

    result = PROGRAM(RUN_TO("/proc/self/fd/1")); /* this is /dev/stdout: messages go elsewhere then */
    expect_code(&result, 0, "/proc/self/fd/1");
    cr_assert_eq(memcmp(result.out, "\x93NUMPY", 6), 0);
    expect_text(result.error, "/proc/self/fd/1: shape " SHAPE, "/proc/self/fd/1");
    release_result(&result);

    result = PROGRAM(RUN_TO("/dev/full"));
    expect_code(&result, 1, "/dev/full");
    expect_text(result.error, "--output /dev/full: cannot be written: No space left on device", "/dev/full");
    release_result(&result);
    result = PROGRAM("bench", "--problem", "ci=1 h=1 w=1 co=1 k=1", "--repeat", "1", "--json", "/dev/full");
    expect_code(&result, 1, "bench");
    expect_text(result.error, "--json /dev/full: cannot be written: No space left on device", "bench");
    release_result(&result);
}

/* A file that would become larger than the process may write is an error, and the old file stays. */
Test(cli_files, a_limit_of_the_files_size_is_an_error)
{
    struct rlimit before, limit;
    write_layer();
    write_whole("y.npy", "old", 3);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 200;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    pid_t child = start_program("/dev/null", NULL, (const char *const[]){RUN_TO("y.npy"), NULL}, NULL);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    struct program_result result = wait_program(child);
    expect_code(&result, 1, "a limit");
    expect_text(result.error, "--output y.npy: cannot be written: File too large", "a limit");
    char *kept = read_whole("y.npy", NULL);
    cr_assert_str_eq(kept, "old");
    cr_assert(!exists_like("y.npy."), "the temporary file is left");
    free(kept);
    release_result(&result);
}

/* Whether there is a file whose name begins with start. */
static bool find_like(const char *start, struct stat *status)
{
    DIR *directory = opendir(".");
    const struct dirent *entry;
    bool found = false;
    cr_assert_not_null(directory);
    while (!found && (entry = readdir(directory)) != NULL)
        found = strncmp(entry->d_name, start, strlen(start)) == 0 && stat(entry->d_name, status) == 0;
    closedir(directory);
    return found;
}

/* The program is ended by a signal while it writes. (A signal that comes too early or too late shows nothing.) */
Test(cli_files, a_signal_leaves_no_temporary_file)
{
    static const float numbers[4] = {1, 2, 3, 4};
    const struct timespec moment = {.tv_nsec = 200000};
    write_npy("x.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 2, 2), }\n", numbers, 16);
    write_npy("w.npy", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1), }\n", numbers, 4);
    pid_t child =
        start_program(NULL, NULL, (const char *const[]){RUN_TO("y.npy"), "--stride", "5000,5000", NULL}, NULL);
    siginfo_t ended = {0};
    struct stat status;
    for (bool writing = false; !writing && ended.si_pid == 0;) {
        nanosleep(&moment, NULL);
        cr_assert_eq(waitid(P_PID, (id_t)child, &ended, WNOHANG | WEXITED | WNOWAIT), 0);
        writing = find_like("y.npy.", &status) && status.st_size > 0;
    }
    kill(child, SIGTERM);
    struct program_result result = wait_program(child);
    cr_assert(!exists_like("y.npy."), "the temporary file is left");
    release_result(&result);
}

/* ------------------------------------------------------------------------------------------------------------- streams */

static const char *const talks[][10] = {
    {"--help"},
    {"--version"},
    {"info"},
    {"info", "--json"},
    {"bench", "--help"},
    {"verify", "--layers", "1", "--no-corners", "--backend", "cpu"},
    {"bench", "--problem", "ci=1 h=1 w=1 co=1 k=1", "--repeat", "1", "--backend", "cpu"},
    {RUN_TO("y.npy")},
};
#define TALK_COUNT (sizeof talks / sizeof talks[0])

Test(cli_files, stdout_that_takes_nothing_is_an_error)
{
    static const struct {
        const char *out, *message;
    } rows[] = {{"/dev/full", "stdout cannot be written: No space left on device"},
                {CLOSED, "stdout cannot be written: Bad file descriptor"}};
    write_layer();
    for (size_t i = 0; i < 2; i++)
        for (size_t j = 0; j < TALK_COUNT; j++) {
            struct program_result result = run_program_to(rows[i].out, NULL, talks[j], NULL);
            expect_code(&result, 1, talks[j][0]);
            expect_text(result.error, rows[i].message, talks[j][0]);
            release_result(&result);
        }
    expect_result("y.npy", "the file all the same");
}

/* Without stderr, or without both, everything else works as ever, and no message ends up in a file. */
Test(cli_files, a_closed_stderr_does_no_harm)
{
    const char *const settings[] = {"TCONV_VERBOSE=2", NULL};
    write_layer();
    for (size_t i = 0; i < TALK_COUNT; i++) {
        struct program_result result = run_program_to(NULL, CLOSED, talks[i], settings);
        expect_code(&result, 0, talks[i][0]);
        cr_assert_neq(result.out[0], '\0', "%s says nothing", talks[i][0]);
        release_result(&result);
    }
    expect_result("y.npy", "stderr closed");
    unlink("y.npy");
    struct program_result result = run_program_to(CLOSED, CLOSED, talks[TALK_COUNT - 1], settings);
    expect_code(&result, 1, "both closed");
    expect_result("y.npy", "both closed");
    release_result(&result);
    result = run_program_to(NULL, CLOSED, (const char *const[]){"run", NULL}, NULL);
    expect_code(&result, 2, "bad input");
    release_result(&result);
}

/* -------------------------------------------------------------------------------------------------------- two results */

#define RUN_GRADIENTS(weights, bias)                                                                                   \
    "run", "--op", "backward_weights", "--input", "x.npy", "--diff-output", "y.npy", "--output", (weights),            \
        "--bias-output", (bias)

/* One file for both gradients would hold the second alone: an error before anything is written. */
Test(cli_files, two_results_are_two_files)
{
    static const struct {
        const char *weights, *bias;
    } same[] = {
        {"new.npy", "new.npy"},
        {"new.npy", "./new.npy"},
        {"new.npy", "directory/../new.npy"},
        {"new.npy", "dangling"},
        {"dangling", "dangling2"},
        {"there.npy", "there.npy"},
        {"there.npy", "symbolic"},
        {"hard", "there.npy"},
        {"hard", "symbolic"},
        {"directory/new.npy", "of_directory/new.npy"},
    };
    char here[300], name[320];
    write_layer();
    run_to("y.npy", "forward");
    write_whole("there.npy", "old", 3);
    cr_assert_eq(mkdir("directory", 0777), 0);
    cr_assert(symlink("new.npy", "dangling") == 0 && symlink("dangling", "dangling2") == 0);
    cr_assert(symlink("there.npy", "symbolic") == 0 && link("there.npy", "hard") == 0);
    cr_assert_eq(symlink("directory", "of_directory"), 0);
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        size_t size;
        struct program_result result = PROGRAM(RUN_GRADIENTS(same[i].weights, same[i].bias));
        expect_code(&result, 2, same[i].bias);
        expect_text(result.error, "must be another file than --output", same[i].bias);
        release_result(&result);
        char *there = read_whole("there.npy", &size);
        cr_assert(size == 3 && memcmp(there, "old", 3) == 0, "%s was written", same[i].bias);
        free(there);
        cr_assert(!exists_like("new.npy") && access("directory/new.npy", F_OK) != 0, "%s was made", same[i].bias);
    }
    cr_assert_not_null(getcwd(here, sizeof here));
    snprintf(name, sizeof name, "%s/new.npy", here);
    struct program_result result = PROGRAM(RUN_GRADIENTS("new.npy", name));
    expect_code(&result, 2, name);
    release_result(&result);

    static const struct {
        const char *weights, *bias;
    } different[] = {{"new.npy", "directory/new.npy"}, {"there.npy", "new.npy"}, {"/dev/null", "/dev/null"}};
    for (size_t i = 0; i < sizeof different / sizeof different[0]; i++) {
        result = PROGRAM(RUN_GRADIENTS(different[i].weights, different[i].bias));
        expect_code(&result, 0, different[i].bias);
        release_result(&result);
    }
    unlink("directory/new.npy");
    cr_assert_eq(rmdir("directory"), 0);
}
