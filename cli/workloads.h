/* Layers by name from a CSV file with the columns name,N,Cin,H,W,Cout,kh,kw,sh,sw,ph,pw,oph,opw,dh,dw,g,bias, or with those of
 * depth before each H: name,N,Cin,D,H,W,Cout,kd,kh,kw,sd,sh,sw,pd,ph,pw,opd,oph,opw,dd,dh,dw,g,bias. */
#ifndef TCONV_CLI_WORKLOADS_H
#define TCONV_CLI_WORKLOADS_H

#include "harness.h"

#define WORKLOAD_NAME_SIZE 64

typedef struct workload {
    char name[WORKLOAD_NAME_SIZE];
    harness_layer layer; /* f32, NCHW, IOHW; not validated */
} workload;

typedef struct workload_list {
    workload *items; /* owned */
    size_t count, capacity;
    size_t *slots; /* owned; a hash table of names: 1 + index in items, 0 where free */
    size_t slot_count;
} workload_list;

/* The text of bench/workloads.csv, as it was when the program was built. */
extern const char workloads_default[];

/* Appends the layers of a CSV text of length bytes; lines end with LF, CRLF or CR, and a byte order mark before the
 * first is skipped. Returns CLI_SUCCESS, or another exit code with the reason in message; layers appended before it
 * stay. */
int workloads_parse(const char *text, size_t length, workload_list *list, char *message, size_t capacity);

/* Does the same for a file. */
int workloads_read(const char *path, workload_list *list, char *message, size_t capacity);

/* Appends one layer. Returns false when out of memory. */
bool workloads_append(workload_list *list, const char *name, const harness_layer *layer);

/* Finds the first layer of that name; NULL where there is none. */
const workload *workloads_find(const workload_list *list, const char *name);

void workloads_release(workload_list *list);

#endif
