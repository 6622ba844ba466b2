/* The images that databases are in. */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3

#include "trees.h"

/** An image with branches, open. One that has none is a volume, and belongs to its tree. */
struct image {
    char *path;
    int users;
    struct vfscale_pool *pool;
    struct image *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct tree *trees;
static struct image *images;

void trees_lock(void) { pthread_mutex_lock(&mutex); }
void trees_unlock(void) { pthread_mutex_unlock(&mutex); }

static int told(int result) {
    if (result >= 0)
        return SQLITE_OK;
    sqlite3_log(SQLITE_CANTOPEN, "%s", vfscale_error());
    return result == -ENOMEM ? SQLITE_NOMEM : SQLITE_CANTOPEN;
}

size_t place_length(const char *name) {
    const char *at, *last = NULL;
    for (at = strstr(name, ":/"); at != NULL; at = strstr(at + 1, ":/"))
        last = at;
    return last == NULL ? 0 : (size_t)(last - name);
}

/* Opens an image with branches. -EINVAL: it has none. */
static int image_get(const char *path, size_t length, struct image **found) {
    struct image *image;
    int result;

    for (image = images; image != NULL; image = image->next)
        if (strlen(image->path) == length && memcmp(image->path, path, length) == 0)
            break;
    if (image == NULL) {
        image = calloc(1, sizeof *image);
        if (image == NULL || (image->path = strndup(path, length)) == NULL) {
            free(image);
            return -ENOMEM;
        }
        result = vfscale_pool_new(image->path, NULL, 0, &image->pool);
        if (result < 0) {
            free(image->path);
            free(image);
            return result;
        }
        image->next = images;
        images = image;
    }
    image->users++;
    *found = image;
    return 0;
}

static int image_put(struct image *image) {
    struct image **at;
    int result;

    if (--image->users > 0)
        return SQLITE_OK;
    for (at = &images; *at != image; at = &(*at)->next)
        ;
    *at = image->next;
    result = told(vfscale_pool_close(image->pool));
    free(image->path);
    free(image);
    return result;
}

/* Opens the file system of a tree: a branch, or a volume without branches. */
static int tree_open(struct tree *tree) {
    const char *place = tree->place, *branch = strrchr(place, ':');
    size_t length = strlen(place);
    int result;

    /* `rbd:` begins the name of an image. */
    if (branch != NULL && !(branch - place == 3 && memcmp(place, "rbd", 3) == 0))
        length = (size_t)(branch - place);
    else
        branch = NULL;
    result = image_get(place, length, &tree->image);
    if (result == 0)
        result = vfscale_pool_open(tree->image->pool, branch ? branch + 1 : "main", NULL, 0,
                                   &tree->fs);
    else if (result == -EINVAL && branch == NULL)
        result = vfscale_fs_volume(place, NULL, 0, &tree->fs);
    if (result == 0)
        result = vfscale_task_new(tree->fs, NULL, 0, &tree->task);
    return told(result);
}

/* Closes what a tree has open, and frees it. */
static int tree_end(struct tree *tree) {
    int result = SQLITE_OK, last;

    if (tree->task != NULL)
        vfscale_task_free(tree->task);
    if (tree->fs != NULL)
        result = told(vfscale_fs_close(tree->fs));
    if (tree->image != NULL) {
        last = image_put(tree->image);
        result = result == SQLITE_OK ? last : result;
    }
    free(tree->place);
    free(tree);
    return result == SQLITE_CANTOPEN ? SQLITE_IOERR_CLOSE : result;
}

int tree_get(struct tree *of, const char *name, struct tree **found, const char **path) {
    struct tree *tree = of;
    size_t length = place_length(name);
    int result;

    *path = of == NULL ? name + length + 1 : name;
    if (of == NULL && length == 0) {
        sqlite3_log(SQLITE_CANTOPEN, "%s: no database in an image, which is IMAGE:/PATH", name);
        return SQLITE_CANTOPEN;
    }
    trees_lock();
    if (of == NULL)
        for (tree = trees; tree != NULL; tree = tree->next)
            if (strlen(tree->place) == length && memcmp(tree->place, name, length) == 0)
                break;
    if (tree == NULL) {
        tree = calloc(1, sizeof *tree);
        if (tree == NULL || (tree->place = strndup(name, length)) == NULL) {
            free(tree);
            trees_unlock();
            return SQLITE_NOMEM;
        }
        result = tree_open(tree);
        if (result != SQLITE_OK) {
            tree_end(tree);
            trees_unlock();
            return result;
        }
        tree->next = trees;
        trees = tree;
    }
    tree->users++;
    trees_unlock();
    *found = tree;
    return SQLITE_OK;
}

int tree_again(struct tree *tree) {
    struct tree *at;

    trees_lock();
    for (at = trees; at != NULL && at != tree; at = at->next)
        ;
    if (at != NULL)
        at->users++;
    trees_unlock();
    return at != NULL ? SQLITE_OK : SQLITE_CANTOPEN;
}

int tree_put(struct tree *tree) {
    struct tree **at;
    int result = SQLITE_OK;

    trees_lock();
    if (--tree->users == 0 && tree->place != NULL) {
        for (at = &trees; *at != tree; at = &(*at)->next)
            ;
        *at = tree->next;
        result = tree_end(tree);
    }
    trees_unlock();
    return result;
}

int vfscale_sqlite_fork(const char *image, const char *parent, const char *child) {
    struct image *found;
    char *path = realpath(image, NULL);
    const char *name = path != NULL ? path : image;
    int result;

    trees_lock();
    result = told(image_get(name, strlen(name), &found));
    if (result == SQLITE_OK) {
        result = told(vfscale_pool_fork(found->pool, parent, child, 0));
        image_put(found);
    }
    trees_unlock();
    free(path);
    return result == SQLITE_CANTOPEN ? SQLITE_ERROR : result;
}
