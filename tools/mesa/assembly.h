/* Counts instructions an element in the assembly that Mesa's drivers print. */

/* What a load or store of a kernel moves. */
struct moved {
    unsigned elements; /* by a load or store of one tensor */
    unsigned inputs;   /* data tensors that are read */
    unsigned outputs;  /* and written */
};

/* By element: the instructions of the innermost loops that access buffers, added up over these loops, and those that
 * access buffers; of the whole text if no loop accesses them. A loop handles the elements that it stores, or loads if
 * it stores none. Loads of parameters count as loads of data, and ways that exclude each other are added up, so
 * numbers are good for comparing texts of one kernel. 0 if no elements are moved. */
struct costs {
    double instructions;
    double memory;
};

struct costs costs_of(char *text, const struct moved *moved);
