/* The exit code of a child of attack_out_of_memory that came to its end: no other code of the library's, of libgomp's or
 * of the C library's making is the same. */
#define OOM_CHILD_ENDED 42
