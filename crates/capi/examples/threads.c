/* Threads on one tree: each has a task of its own, with the credentials of a user, and waits for a
 * lock to append to a shared file. */

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "vfscale.h"

static struct vfscale_fs *fs;

static void *append(void *arg) {
    struct vfscale_credentials user;
    struct vfscale_task *task;
    char line[32];
    int fd, number = *(int *)arg;

    memset(&user, 0, sizeof user);
    user.uid = user.real_uid = 1000 + (unsigned)number;
    user.gid = user.real_gid = 100;
    if (vfscale_task_new(fs, &user, sizeof user, &task) < 0)
        return NULL;
    fd = vfscale_open(task, "/log", O_WRONLY | O_APPEND, 0);
    if (fd < 0 || vfscale_flock(task, fd, LOCK_EX, NULL) < 0) {
        fprintf(stderr, "%s\n", vfscale_error());
        return NULL;
    }
    snprintf(line, sizeof line, "user %u was here\n", user.uid);
    vfscale_write(task, fd, line, strlen(line));
    vfscale_task_free(task); /* Closes the descriptor, which releases the lock. */
    return NULL;
}

int main(void) {
    struct vfscale_task *task;
    pthread_t threads[4];
    int n, numbers[4];
    char text[256];
    ssize_t length;

    if (vfscale_fs_memory(NULL, 0, &fs) < 0 || vfscale_task_new(fs, NULL, 0, &task) < 0)
        return 1;
    if (vfscale_write_file(task, "/log", "", 0) < 0 || vfscale_chmod(task, "/log", 0666) < 0)
        return 1;
    for (n = 0; n < 4; n++) {
        numbers[n] = n;
        if (pthread_create(&threads[n], NULL, append, &numbers[n]) != 0)
            return 1;
    }
    for (n = 0; n < 4; n++)
        pthread_join(threads[n], NULL);
    length = vfscale_read_file(task, "/log", text, sizeof text);
    if (length != 4 * 19) {
        fprintf(stderr, "%zd bytes: %s\n", length, vfscale_error());
        return 1;
    }
    printf("%.*s", (int)length, text);
    vfscale_task_free(task);
    return vfscale_fs_close(fs) < 0;
}
