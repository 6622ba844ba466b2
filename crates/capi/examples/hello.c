/* A tree in memory: files, a directory, an error. */

#include <fcntl.h>
#include <stdio.h>

#include "vfscale.h"

int main(void) {
    struct vfscale_fs *fs;
    struct vfscale_task *task;
    struct vfscale_dir *dir;
    struct vfscale_dirent entry;
    int fd;

    if (vfscale_fs_memory(NULL, 0, &fs) < 0 || vfscale_task_new(fs, NULL, 0, &task) < 0 ||
        vfscale_mkdir_all(task, "/srv/www", 0755) < 0) {
        fprintf(stderr, "%s\n", vfscale_error());
        return 1;
    }
    fd = vfscale_open(task, "/srv/www/index.html", O_CREAT | O_WRONLY, 0644);
    if (fd < 0 || vfscale_write(task, fd, "<h1>hello</h1>\n", 15) != 15) {
        fprintf(stderr, "%s\n", vfscale_error());
        return 1;
    }
    vfscale_close(task, fd);

    if (vfscale_opendir(task, "/srv/www", &dir) < 0)
        return 1;
    while (vfscale_readdir(dir, &entry) == 1)
        printf("%s\n", entry.d_name);
    vfscale_closedir(dir);

    if (vfscale_open(task, "/none", O_RDONLY, 0) < 0)
        printf("%s\n", vfscale_error());
    vfscale_task_free(task);
    return vfscale_fs_close(fs) < 0;
}
