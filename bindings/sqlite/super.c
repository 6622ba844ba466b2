/* The super-journals of transactions over several databases.
 *
 * A journal has the full name of its super-journal, and that one the names of all journals, with
 * the place where they were made. In a fork, or in a copy of an image, they are in the tree of the
 * journal that is rolled back. SQLite does that on one thread: it reads the name from the journal,
 * and asks at once whether the file is there (1); at the end it opens it (2), looks at the journals
 * that it names, closes it, and deletes it (3). */

#include <string.h>

#include "super.h"

static _Thread_local struct {
    /** The tree of the journal that was read by the last call. */
    struct tree *read;
    /** The tree of the journal that is rolled back, and the name of its super-journal. */
    struct tree *tree;
    char name[SUPER_NAME_MAX];
    int is_open;
} now;

void super_journal_read(struct tree *tree) { now.read = tree; }

static const char *path_in(const char *name) { return strchr(name + place_length(name), '/'); }

void super_closed(const char *path) {
    if (now.is_open && strcmp(path, path_in(now.name)) == 0)
        now.is_open = 0;
}

/* Returns whether it is a name of a super-journal: DATABASE-mjXXXXXX9XX. */
static int is_super(const char *name) {
    size_t length = strlen(name);
    return length > 12 && memcmp(name + length - 12, "-mj", 3) == 0 && name[length - 3] == '9';
}

struct tree *super_tree(const char *name, enum super_use use) {
    struct tree *read = now.read;

    now.read = NULL;
    if (now.is_open)
        return now.tree;
    if (use == SUPER_ASKED && read != NULL && is_super(name) && strlen(name) < SUPER_NAME_MAX) {
        now.tree = read;
        strcpy(now.name, name);
        return read;
    }
    if (use != SUPER_ASKED && now.tree != NULL && strcmp(name, now.name) == 0) {
        now.is_open = use == SUPER_OPENED;
        return now.tree;
    }
    return NULL;
}
