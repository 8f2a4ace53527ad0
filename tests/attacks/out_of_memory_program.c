/*
 * Allocation failure in the whole process of the tconv program: for every n, or for n spread evenly where there are
 * many, the n-th call of malloc fails, or all from the n-th on. The program ends by itself: with 0 and its usual
 * output, or with another code, a message, and neither an output file nor a temporary one.
 *
 *     attack_out_of_memory_program PRELOADED PROGRAM
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "oom_driver.h"

#define SECONDS    20
#define MOST_RUNS  100 /* runs of a command that makes more allocations */
#define BENCH_RUNS 5   /* bench measures the machine for half a second */

#define BEFORE_MAIN "the dynamic linker and libgomp's constructor, before any code of the library's"

static char scratch[] = "/tmp/tconv-attack-XXXXXX";
static const char *made; /* the output file of the command, NULL for none */
static unsigned char right[4096], bytes[4096];
static size_t right_size;

/* --------------------------------------------------------------------------------------------------------------- files */

static void write_numbers(const char *name, const char *shape, int count)
{
    char header[118];
    FILE *file = fopen(name, "wb");
    if (file == NULL) {
        perror(name);
        exit(EXIT_FAILURE);
    }
    memset(header, ' ', sizeof header);
    int length = snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shape);
    header[length] = ' ';
    header[sizeof header - 1] = '\n';
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file);
    fwrite(header, 1, sizeof header, file);
    for (int i = 0; i < count; i++) {
        float number = (float)(i * 7 % 11 - 5);
        fwrite(&number, sizeof number, 1, file);
    }
    fclose(file);
}

static size_t read_made(unsigned char *to, size_t capacity)
{
    FILE *file = fopen(made, "rb");
    size_t size = file != NULL ? fread(to, 1, capacity, file) : 0;
    if (file != NULL)
        fclose(file);
    return size;
}

/* Removes all files but the inputs; returns whether there were any. */
static bool remove_left(void)
{
    DIR *directory = opendir(".");
    const struct dirent *entry;
    bool found = false;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        if (strchr(".wxb", entry->d_name[0]) == NULL)
            found |= unlink(entry->d_name) == 0;
    if (directory != NULL)
        closedir(directory);
    return found;
}

static void remove_scratch(void)
{
    const char *const names[] = {"x.npy", "w.npy", "b.npy"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(names[i]);
    if (chdir("/") == 0)
        rmdir(scratch);
}

/* --------------------------------------------------------------------------------------------------------------- judge */

static const char *judge_file(bool success, long n)
{
    if (!success)
        return remove_left() ? "a file is left by a run that failed" : NULL;
    size_t size = read_made(bytes, sizeof bytes);
    unlink(made);
    if (n == 0) {
        memcpy(right, bytes, size);
        right_size = size;
    }
    if (size == 0 || size != right_size || memcmp(bytes, right, size) != 0)
        return "exit code 0 and another output file";
    return remove_left() ? "a file is left beside the output" : NULL;
}

static const char *judge(attack_outcome outcome, const char *output, long n)
{
    bool success = outcome.code == 0 && outcome.signal == 0 && !outcome.timed_out;
    const char *wrong = made != NULL ? judge_file(success, n) : NULL; /* always: it removes the file */
    if (strstr(output, "libgomp:") != NULL)
        return "libgomp ended the process";
    if (outcome.code > 2)
        return "an exit code that the program does not have";
    if (output[0] == '\0')
        return "no output at all";
    if (n == 0 && !success)
        return "it fails where nothing failed";
    return wrong;
}

static void attack(char **argv, const char *name, const char *const *arguments, enum fail_malloc_from from,
                   int most_runs)
{
    const char *vector[32] = {argv[2]};
    for (int i = 0; arguments[i] != NULL; i++)
        vector[i + 1] = arguments[i];
    for (int forever = 0; forever < 2; forever++) {
        const oom_command command = {.name = name,
                                     .arguments = vector,
                                     .preload = argv[1],
                                     .from = from,
                                     .forever = forever != 0,
                                     .own_directory = true,
                                     .may_keep = true, /* a program may leave what the end of the process frees */
                                     .most_runs = most_runs,
                                     .seconds = SECONDS,
                                     .only_report = from == FAIL_MALLOC_FROM_MAIN ? NULL : BEFORE_MAIN,
                                     .judge = judge};
        oom_attack(&command);
    }
}

static const char *const to_version[] = {"--version", NULL};

#define ATTACK(name, runs, ...)                                                                                        \
    attack(argv, name, (const char *const[]){__VA_ARGS__, NULL}, FAIL_MALLOC_FROM_MAIN, runs)

int main(int argc, char **argv)
{
    if (argc != 3 || mkdtemp(scratch) == NULL || chdir(scratch) != 0) {
        printf("usage: %s PRELOADED PROGRAM\n", argv[0]);
        return 2;
    }
    char x[64], w[64], b[64];
    snprintf(x, sizeof x, "%s/x.npy", scratch);
    snprintf(w, sizeof w, "%s/w.npy", scratch);
    snprintf(b, sizeof b, "%s/b.npy", scratch);
    write_numbers("x.npy", "(1, 2, 3, 4)", 24);
    write_numbers("w.npy", "(2, 3, 2, 2)", 24);
    write_numbers("b.npy", "(3,)", 3);
    attack(argv, "tconv --version, from the start of the process", to_version, FAIL_MALLOC_FROM_START, 0);
    ATTACK("tconv --help", 0, "--help");
    ATTACK("tconv info --json", 0, "info", "--json");
    ATTACK("tconv verify", MOST_RUNS, "verify", "--backend", "cpu", "--threads", "1", "--layers", "3", "--no-corners",
           "--seed", "1");
    ATTACK("tconv bench", BENCH_RUNS, "bench", "--backend", "cpu", "--threads", "1", "--repeat", "1", "--problem",
           "n=1 ci=2 h=3 w=4 co=3 k=2");
    made = "y.npy";
    ATTACK("tconv run", 0, "run", "--threads", "1", "--backend", "cpu", "--input", x, "--weight", w, "--bias", b,
           "--output", "y.npy", "--stride", "2");
    remove_scratch();
    return attack_end();
}
