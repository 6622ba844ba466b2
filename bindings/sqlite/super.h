/* The super-journals of transactions over several databases. Internal. */

#ifndef VFSCALE_SQLITE_SUPER_H
#define VFSCALE_SQLITE_SUPER_H

#include "trees.h"

/** The longest path of a database, with its image, and a zero. */
#define SUPER_NAME_MAX 4400

/** The use of a name. */
enum super_use { SUPER_ASKED, SUPER_OPENED, SUPER_DELETED, SUPER_OTHER };

/** Notes that this thread has read a journal in a tree of an image. */
void super_journal_read(struct tree *tree);

/**
 * Returns the tree that a name leads to, if it is that of a super-journal, or was read from one;
 * NULL for all other names. The tree may have been closed: see tree_again.
 */
struct tree *super_tree(const char *name, enum super_use use);

/** Notes that this thread has closed a super-journal, or a journal that one names. */
void super_closed(const char *path);

#endif
