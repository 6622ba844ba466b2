/* A volume in an image file, which survives a crash: counts how often the program ran. The argument
 * is the folder of the image. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vfscale.h"

static int fail(void) {
    fprintf(stderr, "%s\n", vfscale_error());
    return 1;
}

int main(int argc, char **argv) {
    struct vfscale_volume_options options;
    struct vfscale_fs *fs;
    struct vfscale_task *task;
    char image[4096], text[32] = "";
    ssize_t length;

    snprintf(image, sizeof image, "%s/counter.vfs", argc > 1 ? argv[1] : ".");
    memset(&options, 0, sizeof options);
    options.create_size = 64 << 20;
    if (vfscale_fs_volume(image, &options, sizeof options, &fs) < 0)
        return fail();
    if (vfscale_task_new(fs, NULL, 0, &task) < 0)
        return fail();

    length = vfscale_read_file(task, "/runs", text, sizeof text - 1);
    if (length < 0 && !vfscale_fs_is_new(fs))
        return fail();
    snprintf(text, sizeof text, "%d", (length > 0 ? atoi(text) : 0) + 1);
    /* Durable: when this returns, no crash can lose it. */
    if (vfscale_replace_file(task, "/runs", text, strlen(text), 1) < 0)
        return fail();
    printf("run %s\n", text);

    vfscale_task_free(task);
    return vfscale_fs_close(fs) < 0 ? fail() : 0;
}
