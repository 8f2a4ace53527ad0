/* The exit code of a child of attack_out_of_memory that ran to its end. No code of the library, of libgomp or of the C
 * library is the same. */
#define OOM_CHILD_ENDED 42
