/* See assembly.h. */
#include "assembly.h"

#include <ctype.h>
#include <string.h>

enum { MOST_BLOCKS = 2048, MOST_LOOPS = 256 };

/* Instructions without a jump among them, or into them. */
struct block {
    const char *label, *jump; /* the line with the jump at its end */
    int goes_on;              /* to the next block */
    unsigned instructions, loads, stores;
};
static struct block blocks[MOST_BLOCKS];
static int block_count;

/* The blocks of each loop. */
static char loops[MOST_LOOPS][MOST_BLOCKS];
static int loop_count;

/* The label of a line, which it ends: `BB3:` (RADV), `LABEL3:` (ANV), `block 1 L6 [0] -> {` (NVK). NULL if it has
 * none. */
static const char *label_in(char *line) {
    if (strncmp(line, "block", 5) == 0) {
        line = strchr(line, 'L');
        if (line) line[strcspn(line, " ")] = 0;
        return line;
    }
    size_t length = strcspn(line, ": \t");
    if (line[length] != ':' || (strncmp(line, "BB", 2) && strncmp(line, "LABEL", 5))) return NULL;
    line[length] = 0;
    return line;
}

/* Whether a line of text is an instruction, or ends one. */
static int is_instruction(const char *line) {
    if (strstr(line, "};")) return 1;                               /* ANV */
    if (strstr(line, "// delay")) return 1;                         /* NVK */
    return line[0] == '\t' && isalpha((unsigned char)line[1]) != 0; /* RADV */
}

/* Loads from buffers, not of uniforms or from workgroup memory. */
static int is_load(const char *line) {
    if (strstr(line, "surface read")) return !strstr(line, "Surface = 254");
    if (strstr(line, "s_buffer_load")) return 0;
    return strstr(line, "buffer_load") || strstr(line, "global_load") || strstr(line, "ld.global");
}

static int is_store(const char *line) {
    if (strstr(line, "surface write")) return !strstr(line, "Surface = 254");
    return strstr(line, "buffer_store") || strstr(line, "global_store") || strstr(line, "st.global");
}

static int is_jump(const char *line) {
    return strstr(line, "branch") || strstr(line, " bra ") || strncmp(line, "while", 5) == 0;
}

static struct block *begin_block(void) {
    if (block_count == MOST_BLOCKS) return NULL;
    struct block *block = &blocks[block_count++];
    *block = (struct block){.goes_on = 1};
    return block;
}

static void read_blocks(char *text) {
    block_count = 0;
    struct block *block = begin_block();
    for (char *line = strtok(text, "\n"); line && block; line = strtok(NULL, "\n")) {
        const char *label = label_in(line);
        if (label) {
            block = begin_block();
            if (block) block->label = label;
        } else if (is_instruction(line)) {
            block->instructions++;
            block->loads += (unsigned)is_load(line);
            block->stores += (unsigned)is_store(line);
            if (is_jump(line)) {
                block->jump = line;
                block->goes_on = strstr(line, "cbranch") || line[0] == '@' || line[0] == 'w';
                block = begin_block();
            }
        }
    }
}

static int jumps_to(int from, int to) {
    if (!blocks[from].jump || !blocks[to].label) return 0;
    const char *label = blocks[to].label;
    for (const char *found = blocks[from].jump; (found = strstr(found, label)); found++)
        if (!isalnum((unsigned char)found[strlen(label)])) return 1;
    return 0;
}

/* Adds the blocks from which one leads back to the loop's first without passing it again. */
static void add_to_loop(char *loop, int block) {
    if (loop[block]) return;
    loop[block] = 1;
    for (int from = 0; from < block_count; from++)
        if (jumps_to(from, block) || (from + 1 == block && blocks[from].goes_on)) add_to_loop(loop, from);
}

static void find_loops(void) {
    loop_count = 0;
    for (int first = 0; first < block_count && loop_count < MOST_LOOPS; first++) {
        char *loop = loops[loop_count];
        memset(loop, 0, MOST_BLOCKS);
        loop[first] = 1;
        int found = 0;
        for (int last = first; last < block_count; last++) {
            if (!jumps_to(last, first)) continue;
            found = 1;
            add_to_loop(loop, last);
        }
        loop_count += found;
    }
}

static int moves(const char *loop) {
    for (int i = 0; i < block_count; i++)
        if (loop[i] && blocks[i].loads + blocks[i].stores > 0) return 1;
    return 0;
}

static int is_within(const char *inner, const char *outer) {
    if (inner == outer) return 0;
    for (int i = 0; i < block_count; i++)
        if (inner[i] && !outer[i]) return 0;
    return 1;
}

static int is_innermost(const char *loop) {
    for (int i = 0; i < loop_count; i++)
        if (is_within(loops[i], loop) && moves(loops[i])) return 0;
    return moves(loop);
}

/* Adds a loop's costs; those of the whole text if loop is NULL. */
static void add(struct costs *costs, const char *loop, const struct moved *moved) {
    unsigned instructions = 0, loads = 0, stores = 0;
    for (int i = 0; i < block_count; i++) {
        if (loop && !loop[i]) continue;
        instructions += blocks[i].instructions;
        loads += blocks[i].loads;
        stores += blocks[i].stores;
    }
    double elements = 0;
    if (stores > 0 && moved->outputs > 0) elements = (double)stores * moved->elements / moved->outputs;
    else if (loads > 0 && moved->inputs > 0) elements = (double)loads * moved->elements / moved->inputs;
    if (elements == 0) return;
    costs->instructions += instructions / elements;
    costs->memory += (loads + stores) / elements;
}

struct costs costs_of(char *text, const struct moved *moved) {
    read_blocks(text);
    find_loops();
    struct costs costs = {0, 0};
    for (int i = 0; i < loop_count; i++)
        if (is_innermost(loops[i])) add(&costs, loops[i], moved);
    if (costs.instructions == 0) add(&costs, NULL, moved);
    return costs;
}
