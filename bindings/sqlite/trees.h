/* The images that databases are in, and the tasks that find them. Internal. */

#ifndef VFSCALE_SQLITE_TREES_H
#define VFSCALE_SQLITE_TREES_H

#include <pthread.h>
#include <stdint.h>

#include "vfscale_sqlite.h"

/** The WAL index of a database: its connections are in one process, so it is memory. */
struct shm {
    uint64_t dev, ino;
    int users;
    int regions, region_bytes;
    void **region;
    /** Protects the regions and the locks. */
    pthread_mutex_t mutex;
    /** Connections with a shared lock of each slot, and whether one has it exclusively. */
    int shared[SQLITE_SHM_NLOCK], exclusive[SQLITE_SHM_NLOCK];
    struct shm *next;
};

/** A tree that databases are found in. */
struct tree {
    /** The place: IMAGE, or IMAGE:BRANCH; NULL for a caller's task. */
    char *place;
    int users;
    struct image *image;
    struct vfscale_fs *fs;
    struct vfscale_task *task;
    struct shm *shms;
    struct tree *next;
};

/** Protects all here but what a shm does. Held while images open and close, and for moments. */
void trees_lock(void);
void trees_unlock(void);

/** Returns the length of the place in a name, PLACE:/PATH, or 0 if it has none. */
size_t place_length(const char *name);

/**
 * Stores the tree of the name, with a use, and the path in it. `of` is the tree of a VFS for a
 * task, whose names are paths; NULL for images. Returns a result code of SQLite.
 */
int tree_get(struct tree *of, const char *name, struct tree **tree, const char **path);

/** Takes a use of a tree of an image if it is open still. Returns a result code of SQLite. */
int tree_again(struct tree *tree);

/** Ends a use of a tree; the last one closes its image. Returns a result code of SQLite. */
int tree_put(struct tree *tree);

#endif
