/*
 * Reads and writes .npy files. After magic and version stands the length of a header, then the header, a Python literal
 * such as
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 * padded with spaces, then the data. The literal is read by a small tokenizer for this form alone.
 */
#include "npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"

#define MAGIC       "\x93NUMPY"
#define MAGIC_BYTES 6
/* Bytes: the most of version 1.0, and far more than the some hundred that such a header has. */
#define MAX_HEADER 65535
/* Bytes: the data begin at a multiple of this in the file, as NumPy writes them. */
#define HEADER_ALIGNMENT 64

static const struct {
    const char *descr;
    tconv_dtype dtype;
    size_t size;
} dtypes[] = {{"<f4", TCONV_F32, 4}, {"<f8", TCONV_F64, 8}, {"<f2", TCONV_F16, 2}};
#define DTYPE_COUNT (sizeof dtypes / sizeof dtypes[0])

static size_t dtype_size(tconv_dtype dtype)
{
    for (size_t i = 0; i < DTYPE_COUNT; ++i)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].size;
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- the header */

typedef struct header {
    const char *at; /* the text not read yet; the header ends with '\0' */
    bool has_descr, has_order, has_shape;
    char descr[16];
    bool fortran_order;
} header;

static void skip_spaces(header *head)
{
    head->at += strspn(head->at, " \t\r\n");
}

static bool take(header *head, const char *token)
{
    size_t length = strlen(token);
    skip_spaces(head);
    if (strncmp(head->at, token, length) != 0)
        return false;
    head->at += length;
    return true;
}

/* Takes a string in either kind of quotes, without escapes, that fits in text. */
static bool take_string(header *head, char *text, size_t capacity)
{
    skip_spaces(head);
    const char quote = *head->at;
    if (quote != '\'' && quote != '"')
        return false;
    const char *end = strchr(head->at + 1, quote);
    size_t length = end != NULL ? (size_t)(end - head->at - 1) : 0;
    if (end == NULL || length >= capacity || memchr(head->at, '\\', length + 1) != NULL)
        return false;
    memcpy(text, head->at + 1, length);
    text[length] = '\0';
    head->at = end + 1;
    return true;
}

/* Takes a tuple of whole numbers: (), (3,), (3, 4), (3, 4,). */
static const char *take_shape(header *head, npy_array *array)
{
    if (!take(head, "("))
        return "has a broken header: shape must be a tuple";
    array->rank = 0;
    while (!take(head, ")")) {
        char *end;
        if (array->rank == NPY_MAX_RANK)
            return "has more than 5 axes";
        skip_spaces(head);
        if (*head->at < '0' || *head->at > '9')
            return "has a broken header: an extent of shape must be a whole number";
        errno = 0;
        array->shape[array->rank++] = strtoll(head->at, &end, 10);
        if (errno != 0)
            return "has an extent that does not fit in 63 bits";
        head->at = end;
        if (!take(head, ",")) {
            if (array->rank == 1 || !take(head, ")"))
                return "has a broken header: extents must be separated by commas";
            break;
        }
    }
    return NULL;
}

static const char *take_item(header *head, npy_array *array)
{
    char key[16];
    bool *seen = NULL;
    if (!take_string(head, key, sizeof key) || !take(head, ":"))
        return "has a broken header: a key is missing";
    if (strcmp(key, "descr") == 0)
        seen = &head->has_descr;
    else if (strcmp(key, "fortran_order") == 0)
        seen = &head->has_order;
    else if (strcmp(key, "shape") == 0)
        seen = &head->has_shape;
    if (seen == NULL || *seen)
        return "has a broken header: the keys must be descr, fortran_order and shape, each once";
    *seen = true;
    if (seen == &head->has_shape)
        return take_shape(head, array);
    if (seen == &head->has_descr)
        return take_string(head, head->descr, sizeof head->descr) ? NULL
                                                                  : "has a broken header: descr must be one string";
    head->fortran_order = take(head, "True");
    return head->fortran_order || take(head, "False") ? NULL
                                                      : "has a broken header: fortran_order must be True or False";
}

static const char *parse_literal(header *head, npy_array *array)
{
    if (!take(head, "{"))
        return "has a broken header: it must be a dictionary";
    while (!take(head, "}")) {
        const char *wrong = take_item(head, array);
        if (wrong != NULL)
            return wrong;
        if (!take(head, ",") && *head->at != '}')
            return "has a broken header: items must be separated by commas";
    }
    skip_spaces(head);
    if (*head->at != '\0')
        return "has a broken header: text after the dictionary";
    if (!head->has_descr || !head->has_order || !head->has_shape)
        return "has a broken header: the keys must be descr, fortran_order and shape, each once";
    return NULL;
}

/* Reads the header's text into *array: everything but the data. On false, message says what is wrong. */
static bool parse_header(const char *text, npy_array *array, char *message, size_t capacity)
{
    header head = {.at = text};
    const char *wrong = parse_literal(&head, array);
    if (wrong == NULL && head.fortran_order)
        wrong = "is in Fortran order: must be in C order";
    if (wrong != NULL) {
        snprintf(message, capacity, "%s", wrong);
        return false;
    }
    size_t which = 0;
    while (which < DTYPE_COUNT && strcmp(dtypes[which].descr, head.descr) != 0)
        ++which;
    if (which == DTYPE_COUNT) {
        snprintf(message, capacity, "has %s dtype '%s': must be '<f2', '<f4' or '<f8'",
                 head.descr[0] == '>' ? "the big-endian" : "the", head.descr);
        return false;
    }
    array->dtype = dtypes[which].dtype;
    array->elements = 1;
    for (int i = 0; i < array->rank; ++i)
        if (__builtin_mul_overflow(array->elements, array->shape[i], &array->elements)) {
            snprintf(message, capacity, "has more elements than fit in 63 bits");
            return false;
        }
    if (array->elements > INT64_MAX / (int64_t)dtypes[which].size) {
        snprintf(message, capacity, "has more bytes than fit in 63 bits");
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------------------------------------- reading */

/* Reads magic, version and header. Returns an exit code. */
static int read_header(FILE *file, npy_array *array, char *message, size_t capacity)
{
    unsigned char start[MAGIC_BYTES + 2], length_bytes[4] = {0};
    size_t got = fread(start, 1, sizeof start, file);
    if (ferror(file) != 0) {
        snprintf(message, capacity, "cannot be read: %s", strerror(errno));
        return CLI_BAD_INPUT;
    }
    if (got != sizeof start || memcmp(start, MAGIC, MAGIC_BYTES) != 0) {
        snprintf(message, capacity, "is no .npy file: it does not start with \\x93NUMPY");
        return CLI_BAD_INPUT;
    }
    const int major = start[MAGIC_BYTES], minor = start[MAGIC_BYTES + 1];
    if ((major != 1 && major != 2) || minor != 0) {
        snprintf(message, capacity, "has .npy version %d.%d: must be 1.0 or 2.0", major, minor);
        return CLI_BAD_INPUT;
    }
    size_t width = major == 1 ? 2 : 4;
    bool whole = fread(length_bytes, 1, width, file) == width;
    uint32_t length = length_bytes[0] | (uint32_t)length_bytes[1] << 8 | (uint32_t)length_bytes[2] << 16 |
                      (uint32_t)length_bytes[3] << 24;
    if (whole && length > MAX_HEADER) {
        snprintf(message, capacity, "has a header of %" PRIu32 " bytes: must be at most %d", length, MAX_HEADER);
        return CLI_BAD_INPUT;
    }
    char *text = calloc((size_t)length + 1, 1);
    bool parsed = false;
    if (text == NULL) {
        snprintf(message, capacity, "no memory for its header");
        return CLI_FAILURE;
    }
    if (!whole || fread(text, 1, length, file) != length)
        snprintf(message, capacity, "is truncated in its header");
    else if (memchr(text, '\0', length) != NULL)
        snprintf(message, capacity, "has a broken header: it holds a zero byte");
    else
        parsed = parse_header(text, array, message, capacity);
    free(text);
    return parsed ? CLI_SUCCESS : CLI_BAD_INPUT;
}

/* Reads the data, which must be all that is left. A regular file's size is checked first, so that a false header costs
 * no memory. */
static int read_data(FILE *file, npy_array *array, char *message, size_t capacity)
{
    const size_t bytes = (size_t)array->elements * dtype_size(array->dtype);
    struct stat status;
    long position = ftell(file);
    if (position >= 0 && fstat(fileno(file), &status) == 0 && S_ISREG(status.st_mode)) {
        int64_t there = (int64_t)status.st_size - position;
        if (there != (int64_t)bytes) {
            snprintf(message, capacity, "%s: its shape takes %zu bytes of data, the file has %" PRId64,
                     there < (int64_t)bytes ? "is truncated" : "has trailing data", bytes, there);
            return CLI_BAD_INPUT;
        }
    }
    array->data = malloc(bytes > 0 ? bytes : 1);
    if (array->data == NULL) {
        snprintf(message, capacity, "no memory for its %zu bytes", bytes);
        return CLI_FAILURE;
    }
    size_t got = fread(array->data, 1, bytes, file);
    if (ferror(file) != 0)
        snprintf(message, capacity, "cannot be read: %s", strerror(errno));
    else if (got < bytes)
        snprintf(message, capacity, "is truncated: its shape takes %zu bytes of data, the file has %zu", bytes, got);
    else if (fgetc(file) != EOF)
        snprintf(message, capacity, "has trailing data: its shape takes %zu bytes, the file has more", bytes);
    else if (ferror(file) != 0)
        snprintf(message, capacity, "cannot be read: %s", strerror(errno));
    else
        return CLI_SUCCESS;
    npy_release(array);
    return CLI_BAD_INPUT;
}

int npy_read(const char *path, npy_array *array, char *message, size_t capacity)
{
    memset(array, 0, sizeof *array);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        const int code = errno == ENOMEM ? CLI_FAILURE : CLI_BAD_INPUT;
        snprintf(message, capacity, "cannot be opened: %s", strerror(errno));
        return code;
    }
    int code = read_header(file, array, message, capacity);
    if (code == CLI_SUCCESS)
        code = read_data(file, array, message, capacity);
    fclose(file);
    return code;
}

void npy_release(npy_array *array)
{
    free(array->data);
    array->data = NULL;
}

/* ------------------------------------------------------------------------------------------------------------- writing */

void npy_format_shape(const int64_t *shape, int rank, char *text, size_t capacity)
{
    size_t length = (size_t)snprintf(text, capacity, "(");
    for (int i = 0; i < rank && length < capacity; ++i)
        length += (size_t)snprintf(text + length, capacity - length, "%s%" PRId64, i == 0 ? "" : ", ", shape[i]);
    if (length < capacity)
        snprintf(text + length, capacity - length, rank == 1 ? ",)" : ")");
}

bool npy_write(FILE *file, tconv_dtype dtype, const int64_t *shape, int rank, const void *data)
{
    const char *descr = "";
    size_t bytes = dtype_size(dtype);
    for (size_t i = 0; i < DTYPE_COUNT; ++i)
        if (dtypes[i].dtype == dtype)
            descr = dtypes[i].descr;
    for (int i = 0; i < rank; ++i)
        bytes *= (size_t)shape[i];

    char extents[128], text[256];
    npy_format_shape(shape, rank, extents, sizeof extents);
    int length = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, extents);
    const int prefix = MAGIC_BYTES + 4; /* magic, version, length of the header */
    int padded = (prefix + length + 1 + HEADER_ALIGNMENT - 1) / HEADER_ALIGNMENT * HEADER_ALIGNMENT - prefix;
    const unsigned char start[] = {1, 0, (unsigned char)(padded & 0xff), (unsigned char)(padded >> 8)};
    return fwrite(MAGIC, 1, MAGIC_BYTES, file) == MAGIC_BYTES && fwrite(start, 1, sizeof start, file) == sizeof start &&
           fprintf(file, "%s%*s\n", text, padded - length - 1, "") >= 0 && fwrite(data, 1, bytes, file) == bytes &&
           fflush(file) == 0;
}
