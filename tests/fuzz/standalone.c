/*
 * A fuzzer without libFuzzer:
 *     replay_<name> [--random N] [--seed S] [--verbose] [FILE or DIRECTORY]...
 * runs every file (of a directory, in the order of their names), then N inputs made from the seed: random bytes, and the
 * files with bytes changed, cut out, repeated and exchanged for numbers at the ends of their types. Input i depends on
 * S + i and on the files alone, so that --random 1 --seed S+i repeats it. --verbose names each input before it is run.
 */
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "random.h"

#define LARGEST_INPUT  4096 /* bytes of a random input */
#define LARGEST_FILE   (1 << 20)
#define MAX_CHANGES    8
#define SECONDS_EACH   20 /* an input that takes longer hangs */
#define RANDOM_PERCENT 10 /* of the inputs that are random bytes alone */

typedef struct input {
    char *name;
    uint8_t *data;
    size_t size;
} input;

typedef struct inputs {
    input *items;
    size_t count;
} inputs;

static char current[512]; /* the input that runs, for messages */

static void die(const char *what, const char *name)
{
    fprintf(stderr, "fuzz: %s: %s\n", what, name);
    exit(2);
}

static void *must_allocate(void *memory)
{
    if (memory == NULL)
        die("no memory", "the inputs");
    return memory;
}

/* ------------------------------------------------------------------------------------------------------------- files */

static void add_file(inputs *list, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        die("cannot be opened", path);
    uint8_t *data = must_allocate(malloc(LARGEST_FILE));
    size_t size = fread(data, 1, LARGEST_FILE, file);
    if (ferror(file) != 0)
        die("cannot be read", path);
    fclose(file);
    list->items = must_allocate(realloc(list->items, (list->count + 1) * sizeof *list->items));
    list->items[list->count++] = (input){must_allocate(strdup(path)), must_allocate(realloc(data, size + 1)), size};
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void add_path(inputs *list, const char *path)
{
    struct dirent **entries;
    int count = scandir(path, &entries, is_visible, alphasort);
    if (count < 0) { /* no directory */
        add_file(list, path);
        return;
    }
    for (int i = 0; i < count; ++i) {
        const size_t capacity = strlen(path) + strlen(entries[i]->d_name) + 2;
        char *name = must_allocate(malloc(capacity));
        snprintf(name, capacity, "%s/%s", path, entries[i]->d_name);
        add_file(list, name);
        free(name);
        free(entries[i]);
    }
    free(entries);
}

/* ------------------------------------------------------------------------------------------------------- random inputs */

typedef struct buffer {
    uint8_t data[LARGEST_INPUT];
    size_t size;
} buffer;

static size_t below(harness_random *random, size_t end)
{
    return end > 0 ? (size_t)harness_random_integer(random, 0, (int64_t)end - 1) : 0;
}

/* Replaces the removed bytes at at by count bytes; bytes that do not fit fall off the end. */
static void replace(buffer *text, size_t at, size_t removed, const void *bytes, size_t count)
{
    uint8_t old[LARGEST_INPUT];
    const size_t rest = text->size - at - removed;
    memcpy(old, text->data + at + removed, rest);
    if (count > LARGEST_INPUT - at)
        count = LARGEST_INPUT - at;
    const size_t kept = rest < LARGEST_INPUT - at - count ? rest : LARGEST_INPUT - at - count;
    memcpy(text->data + at, bytes, count);
    memcpy(text->data + at + count, old, kept);
    text->size = at + count + kept;
}

static void put_number(buffer *text, harness_random *random)
{
    static const char *const texts[] = {"0",          "1",          "-1",  "65535", "65536",
                                        "2147483648", "4294967296", "4e9", "0x10",  "9223372036854775807",
                                        "-0",         "nan",        "1.5", "",      "9223372036854775808",
                                        " ",          "\r\n",       ",",   "\n\n",  "00000000000000000001"};
    static const uint64_t values[] = {0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff, INT64_MAX, UINT64_MAX};
    const size_t at = below(random, text->size + 1), most = text->size - at;
    if (harness_random_chance(random, 50)) {
        const char *chosen = texts[below(random, sizeof texts / sizeof texts[0])];
        const size_t digits = strspn((const char *)text->data + at, "0123456789"); /* draw() ends data with '\0' */
        replace(text, at, digits < most ? digits : most, chosen, strlen(chosen));
    } else {
        const size_t width = (size_t)1 << below(random, 4);
        replace(text, at, width < most ? width : most, &values[below(random, sizeof values / sizeof values[0])], width);
    }
}

static void change(buffer *text, harness_random *random, const inputs *files)
{
    uint8_t bytes[LARGEST_INPUT];
    const size_t at = below(random, text->size), length = below(random, text->size - at);
    const uint64_t bits = harness_random_bits(random);
    const input *other = &files->items[below(random, files->count)];
    switch (harness_random_integer(random, 0, 6)) {
    case 0: /* a bit */
        if (text->size > 0)
            text->data[at] ^= (uint8_t)(1u << (bits & 7));
        break;
    case 1: /* a byte */ replace(text, at, text->size > 0, &bits, 1); break;
    case 2: /* bytes more */ replace(text, at, 0, &bits, bits >> 61); break;
    case 3: /* a piece less */ replace(text, at, length, "", 0); break;
    case 4: /* a piece twice */
        memcpy(bytes, text->data + at, length);
        replace(text, at, 0, bytes, length);
        break;
    case 5: /* the end of another file */
        if (files->count > 0) {
            const size_t from = below(random, other->size);
            replace(text, at, text->size - at, other->data + from, other->size - from);
        }
        break;
    default: put_number(text, random);
    }
}

static void draw(buffer *text, const inputs *files, uint64_t seed)
{
    harness_random random;
    harness_random_seed(&random, seed);
    memset(text, 0, sizeof *text);
    if (files->count == 0 || harness_random_chance(&random, RANDOM_PERCENT)) {
        text->size = below(&random, LARGEST_INPUT) >> below(&random, 12);
        for (size_t i = 0; i < text->size; ++i)
            text->data[i] = (uint8_t)harness_random_bits(&random);
        return;
    }
    const input *start = &files->items[below(&random, files->count)];
    text->size = start->size < LARGEST_INPUT ? start->size : LARGEST_INPUT;
    memcpy(text->data, start->data, text->size);
    for (int64_t left = harness_random_integer(&random, 1, MAX_CHANGES); left > 0; --left) {
        if (text->size == LARGEST_INPUT) /* put_number looks for the end of digits */
            text->size = LARGEST_INPUT - 1;
        text->data[text->size] = '\0';
        change(text, &random, files);
    }
}

/* ------------------------------------------------------------------------------------------------------------ running */

static void on_alarm(int number)
{
    static const char message[] = "fuzz: hangs: ";
    (void)number;
    if (write(STDERR_FILENO, message, sizeof message - 1) > 0 && write(STDERR_FILENO, current, strlen(current)) > 0)
        (void)!write(STDERR_FILENO, "\n", 1);
    _exit(1);
}

/* The bytes are copied to memory of their own size, so that a sanitizer sees a read past them. */
static void run(const uint8_t *data, size_t size, const char *name, int verbose)
{
    uint8_t *copy = must_allocate(malloc(size > 0 ? size : 1));
    memcpy(copy, data, size);
    snprintf(current, sizeof current, "%s", name);
    if (verbose)
        fprintf(stderr, "%s\n", name);
    alarm(SECONDS_EACH);
    LLVMFuzzerTestOneInput(copy, size);
    alarm(0);
    free(copy);
}

int main(int argc, char **argv)
{
    uint64_t random_count = 0, seed = 1;
    int verbose = 0;
    inputs files = {0};
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--verbose") == 0)
            verbose = 1;
        else if (strcmp(argv[i], "--random") == 0 && i + 1 < argc)
            random_count = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else
            add_path(&files, argv[i]);
    }
    signal(SIGALRM, on_alarm);
    for (size_t i = 0; i < files.count; ++i)
        run(files.items[i].data, files.items[i].size, files.items[i].name, verbose);
    for (uint64_t i = 0; i < random_count; ++i) {
        static buffer made;
        char name[64];
        draw(&made, &files, seed + i);
        snprintf(name, sizeof name, "--random 1 --seed %" PRIu64, seed + i);
        run(made.data, made.size, name, verbose);
    }
    printf("%zu files and %" PRIu64 " random inputs: all right\n", files.count, random_count);
    for (size_t i = 0; i < files.count; ++i) {
        free(files.items[i].name);
        free(files.items[i].data);
    }
    free(files.items);
    return 0;
}
