/* Tries something in twenty branches of an image, and keeps the best one. The argument is the folder
 * of the image. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vfscale.h"

#define BRANCHES 20

static void must(int result) {
    if (result < 0) {
        fprintf(stderr, "%s\n", vfscale_error());
        exit(1);
    }
}

/* Works in a branch, and returns how good the result is. */
static int attempt(struct vfscale_pool *pool, const char *name, int number) {
    struct vfscale_fs *fs;
    struct vfscale_task *task;
    char text[32];
    int score = number * 7 % BRANCHES;

    must(vfscale_pool_open(pool, name, NULL, 0, &fs));
    must(vfscale_task_new(fs, NULL, 0, &task));
    snprintf(text, sizeof text, "%d", score);
    must(vfscale_write_file(task, "/result", text, strlen(text)));
    must(vfscale_task_free(task));
    must(vfscale_fs_close(fs));
    return score;
}

int main(int argc, char **argv) {
    struct vfscale_volume_options volume;
    struct vfscale_pool_options options;
    struct vfscale_pool *pool;
    struct vfscale_fs *fs;
    struct vfscale_diff *diff;
    struct vfscale_difference difference;
    char image[4096], name[32], best[32] = "";
    int number, score, most = -1, next;

    snprintf(image, sizeof image, "%s/branches.vfs", argc > 1 ? argv[1] : ".");
    memset(&volume, 0, sizeof volume);
    volume.create_size = 256 << 20;
    must(vfscale_fs_volume(image, &volume, sizeof volume, &fs));
    must(vfscale_fs_close(fs));

    memset(&options, 0, sizeof options);
    options.flags = VFSCALE_POOL_CONVERT;
    must(vfscale_pool_new(image, &options, sizeof options, &pool));
    for (number = 0; number < BRANCHES; number++) {
        snprintf(name, sizeof name, "try%d", number);
        must(vfscale_pool_fork(pool, "main", name, VFSCALE_FORK_TEMPORARY));
        score = attempt(pool, name, number);
        if (score > most) {
            most = score;
            strcpy(best, name);
        }
    }

    must(vfscale_pool_diff(pool, "main", best, &diff));
    while ((next = vfscale_next_difference(diff, &difference)) > 0)
        printf("%s has %s\n", best, difference.path);
    must(next);
    must(vfscale_diff_free(diff));
    must(vfscale_pool_adopt(pool, "main", best)); /* The others end with the pool. */
    must(vfscale_pool_close(pool));
    return 0;
}
