/* Reads workloads strictly: the header line must be exact, and every line must have every column. Names are looked up
 * in a hash table, so that a file of many layers takes time in proportion to its size. */
#include "workloads.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

#define MAX_FILE_BYTES  (16 << 20) /* bytes; some hundred thousand layers fit */
#define LINE_BYTES      512
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

/* The columns between name and bias, in order; those of depth only where the header has them. One padding stands for both
 * sides. */
static const struct column {
    size_t field;
    bool of_depth;
} columns[] = {
    {offsetof(tconv_desc, batch), false},
    {offsetof(tconv_desc, in_channels), false},
    {offsetof(tconv_desc, in_d), true},
    {offsetof(tconv_desc, in_h), false},
    {offsetof(tconv_desc, in_w), false},
    {offsetof(tconv_desc, out_channels), false},
    {offsetof(tconv_desc, kernel_d), true},
    {offsetof(tconv_desc, kernel_h), false},
    {offsetof(tconv_desc, kernel_w), false},
    {offsetof(tconv_desc, stride_d), true},
    {offsetof(tconv_desc, stride_h), false},
    {offsetof(tconv_desc, stride_w), false},
    {offsetof(tconv_desc, pad_front), true},
    {offsetof(tconv_desc, pad_top), false},
    {offsetof(tconv_desc, pad_left), false},
    {offsetof(tconv_desc, output_padding_d), true},
    {offsetof(tconv_desc, output_padding_h), false},
    {offsetof(tconv_desc, output_padding_w), false},
    {offsetof(tconv_desc, dilation_d), true},
    {offsetof(tconv_desc, dilation_h), false},
    {offsetof(tconv_desc, dilation_w), false},
    {offsetof(tconv_desc, groups), false},
};
#define COLUMN_COUNT (sizeof columns / sizeof columns[0])

/* The first lines of files without and with depth, and what their other lines must be. */
#define HEADER          "name,N,Cin,H,W,Cout,kh,kw,sh,sw,ph,pw,oph,opw,dh,dw,g,bias"
#define HEADER_OF_DEPTH "name,N,Cin,D,H,W,Cout,kd,kh,kw,sd,sh,sw,pd,ph,pw,opd,oph,opw,dd,dh,dw,g,bias"
#define ALL_NUMBERS     "columns, all but the name whole numbers >= 0"
static const char *const headers[2] = {HEADER, HEADER_OF_DEPTH};
static const char *const column_rules[2] = {"there must be 18 " ALL_NUMBERS, "there must be 24 " ALL_NUMBERS};

/* --------------------------------------------------------------------------------------------------------------- lists */

#define FIRST_CAPACITY 64
#define SLOTS_PER_ITEM 2 /* at least; free slots are then met soon */

/* Returns the FNV-1a hash of a name. */
static uint64_t hash_of(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name != '\0'; ++name)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

/* Returns the slot of name, or the free slot where name would go. slot_count is a power of two. */
static size_t *find_slot(const workload_list *list, const char *name)
{
    size_t at = (size_t)hash_of(name) & (list->slot_count - 1);
    while (list->slots[at] != 0 && strcmp(list->items[list->slots[at] - 1].name, name) != 0)
        at = (at + 1) & (list->slot_count - 1);
    return &list->slots[at];
}

/* Makes room for one more layer. On false the list is as it was. */
static bool grow(workload_list *list)
{
    if (list->count < list->capacity)
        return true;
    const size_t capacity = list->capacity > 0 ? 2 * list->capacity : FIRST_CAPACITY;
    workload *items = realloc(list->items, capacity * sizeof *items);
    if (items == NULL)
        return false;
    list->items = items;
    size_t *slots = calloc(capacity * SLOTS_PER_ITEM, sizeof *slots);
    if (slots == NULL)
        return false;
    free(list->slots);
    list->slots = slots;
    list->slot_count = capacity * SLOTS_PER_ITEM;
    list->capacity = capacity;
    for (size_t i = 0; i < list->count; ++i) {
        size_t *slot = find_slot(list, items[i].name);
        *slot = *slot != 0 ? *slot : i + 1;
    }
    return true;
}

bool workloads_append(workload_list *list, const char *name, const harness_layer *layer)
{
    if (!grow(list))
        return false;
    workload *added = &list->items[list->count++];
    snprintf(added->name, sizeof added->name, "%s", name);
    added->layer = *layer;
    size_t *slot = find_slot(list, added->name);
    *slot = *slot != 0 ? *slot : list->count;
    return true;
}

const workload *workloads_find(const workload_list *list, const char *name)
{
    const size_t index = list->slot_count > 0 ? *find_slot(list, name) : 0;
    return index > 0 ? &list->items[index - 1] : NULL;
}

void workloads_release(workload_list *list)
{
    free(list->items);
    free(list->slots);
    *list = (workload_list){0};
}

/* ------------------------------------------------------------------------------------------------------------- reading */

/* Returns the number of bytes that the well-formed UTF-8 character at text takes (RFC 3629, table in section 4); 0 for
 * none. */
static size_t character_bytes(const unsigned char *text)
{
    static const struct {
        unsigned char first, last; /* range of the first byte */
        unsigned char least, most; /* range of the second byte */
        size_t bytes;
    } rows[] = {
        {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
        {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
        {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    if (text[0] < 0x80)
        return 1;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        if (text[0] < rows[i].first || text[0] > rows[i].last || text[1] < rows[i].least || text[1] > rows[i].most)
            continue;
        for (size_t at = 2; at < rows[i].bytes; ++at)
            if ((text[at] & 0xc0) != 0x80)
                return 0;
        return rows[i].bytes;
    }
    return 0;
}

/* Whether a name can be printed in JSON and in a table without escapes. */
static bool is_printable(const char *name)
{
    const unsigned char *at = (const unsigned char *)name;
    for (size_t bytes; *at != '\0'; at += bytes)
        if (*at < 0x20 || *at == 0x7f || *at == '"' || *at == '\\' || (bytes = character_bytes(at)) == 0)
            return false;
    return true;
}

/* Reads the whole number at *at and the separator after it, which must be next. */
static bool take_number(const char **at, char next, int64_t *value)
{
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *value = strtoll(*at, &end, 10);
    if (errno != 0 || *end != next)
        return false;
    *at = *end == '\0' ? end : end + 1;
    return true;
}

/* Reads one line, which ends with '\0'. Returns what is wrong, or NULL. */
static const char *parse_line(const char *line, bool has_depth, workload *to)
{
    size_t length = strcspn(line, ",");
    if (length == 0 || length >= sizeof to->name)
        return "the name must have 1 to 63 characters";
    memcpy(to->name, line, length);
    to->name[length] = '\0';
    if (!is_printable(to->name))
        return "the name must be UTF-8 without quotes, backslashes and control characters";
    const char *at = line + length + (line[length] == ',');
    tconv_desc *desc = &to->layer.desc;
    tconv_desc_init(desc);
    for (size_t i = 0; i < COLUMN_COUNT; ++i) {
        int64_t value;
        if (columns[i].of_depth && !has_depth)
            continue;
        if (!take_number(&at, ',', &value))
            return column_rules[has_depth];
        memcpy((char *)desc + columns[i].field, &value, sizeof value);
    }
    int64_t bias;
    if (!take_number(&at, '\0', &bias) || bias > 1)
        return "the last column, bias, must be 0 or 1";
    to->layer.has_bias = bias == 1;
    desc->pad_back = desc->pad_front;
    desc->pad_bottom = desc->pad_top;
    desc->pad_right = desc->pad_left;
    return NULL;
}

/* Takes the line at *at out of the text that ends at end, into line, which ends with '\0'. Returns what is wrong, or
 * NULL. */
static const char *take_line(const char **at, const char *end, char *line, size_t capacity)
{
    const char *start = *at, *stop = start;
    while (stop < end && *stop != '\r' && *stop != '\n')
        ++stop;
    const size_t length = (size_t)(stop - start);
    if (stop < end && *stop == '\r')
        ++stop;
    if (stop < end && *stop == '\n')
        ++stop;
    *at = stop;
    line[0] = '\0';
    if (memchr(start, '\0', length) != NULL)
        return "there is a zero byte";
    if (length >= capacity)
        return "the line is longer than 511 characters";
    memcpy(line, start, length);
    line[length] = '\0';
    return NULL;
}

int workloads_parse(const char *text, size_t length, workload_list *list, char *message, size_t capacity)
{
    const char *at = text, *end = text + length;
    bool has_depth = false;
    if (length >= strlen(BYTE_ORDER_MARK) && memcmp(text, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0)
        at += strlen(BYTE_ORDER_MARK);
    for (int number = 1; at < end; ++number) {
        char line[LINE_BYTES];
        const char *wrong = take_line(&at, end, line, sizeof line);
        workload entry;
        if (number == 1)
            has_depth = strcmp(line, headers[true]) == 0;
        if (wrong == NULL && number == 1 && strcmp(line, headers[has_depth]) != 0)
            wrong = "the header must be " HEADER ", or with depth " HEADER_OF_DEPTH;
        if (wrong == NULL && (number == 1 || line[0] == '\0'))
            continue;
        if (wrong == NULL)
            wrong = parse_line(line, has_depth, &entry);
        if (wrong == NULL && workloads_find(list, entry.name) != NULL)
            wrong = "the name appears twice";
        if (wrong != NULL) {
            snprintf(message, capacity, "line %d: %s", number, wrong);
            return CLI_BAD_INPUT;
        }
        if (!workloads_append(list, entry.name, &entry.layer)) {
            snprintf(message, capacity, "no memory");
            return CLI_FAILURE;
        }
    }
    if (list->count > 0)
        return CLI_SUCCESS;
    snprintf(message, capacity, "has no layer");
    return CLI_BAD_INPUT;
}

int workloads_read(const char *path, workload_list *list, char *message, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    char *text = file != NULL ? malloc(MAX_FILE_BYTES + 1) : NULL;
    int code = CLI_BAD_INPUT;
    if (file == NULL) {
        code = errno == ENOMEM ? CLI_FAILURE : CLI_BAD_INPUT;
        snprintf(message, capacity, "cannot be opened: %s", strerror(errno));
    } else if (text == NULL) {
        snprintf(message, capacity, "no memory");
        code = CLI_FAILURE;
    } else {
        size_t length = fread(text, 1, MAX_FILE_BYTES + 1, file);
        if (ferror(file) != 0) {
            snprintf(message, capacity, "cannot be read: %s", strerror(errno));
        } else if (length > MAX_FILE_BYTES) {
            snprintf(message, capacity, "is larger than 16 MiB");
        } else {
            code = workloads_parse(text, length, list, message, capacity);
        }
    }
    free(text);
    if (file != NULL)
        fclose(file);
    return code;
}
