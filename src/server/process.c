#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"

/* The parent's part: waits for the child's word, then ends with its status. */
static void wait_until_ready(int fd) {
    char byte;
    ssize_t n;
    do {
        n = read(fd, &byte, 1);
    } while (n < 0 && errno == EINTR);
    _exit(n == 1 ? 0 : 1);
}

int process_daemonize(int *out_ready_fd) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return -errno;
    }
    pid_t pid = fork();
    if (pid < 0) {
        int err = -errno;
        close(fds[0]);
        close(fds[1]);
        return err;
    }
    if (pid > 0) {
        close(fds[1]);
        wait_until_ready(fds[0]);
    }
    close(fds[0]);
    if (setsid() < 0) {
        return -errno;
    }
    *out_ready_fd = fds[1];
    return 0;
}

void process_ready(int ready_fd) {
    if (ready_fd < 0) {
        return;
    }
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd >= 0) {
        dup2(null_fd, 0);
        dup2(null_fd, 1);
        dup2(null_fd, 2);
        close(null_fd);
    }
    if (write(ready_fd, "", 1) != 1) {
        log_warning("the process that started the server has gone");
    }
    close(ready_fd);
}

int process_write_pid(const char *path) {
    FILE *f = fopen(path, "we");
    if (f == NULL) {
        return -errno;
    }
    int err = fprintf(f, "%ld\n", (long)getpid()) < 0 ? -EIO : 0;
    if (fclose(f) != 0 && err == 0) {
        err = -errno;
    }
    return err;
}

void process_remove_pid(const char *path) {
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return;
    }
    char text[32] = "";
    char *end;
    if (fgets(text, sizeof text, f) != NULL && strtol(text, &end, 10) == (long)getpid()) {
        unlink(path);
    }
    fclose(f);
}

int process_become(const char *user, const char *group) {
    const struct passwd *pw = NULL;
    if (user != NULL && user[0] != '\0') {
        pw = getpwnam(user);
        if (pw == NULL) {
            log_error("proc-user=%s: no such user", user);
            return -ENOENT;
        }
    }
    gid_t gid = pw != NULL ? pw->pw_gid : getgid();
    if (group != NULL && group[0] != '\0') {
        const struct group *gr = getgrnam(group);
        if (gr == NULL) {
            log_error("proc-group=%s: no such group", group);
            return -ENOENT;
        }
        gid = gr->gr_gid;
    } else if (pw == NULL) {
        return 0;
    }
    if ((pw != NULL && initgroups(pw->pw_name, gid) != 0) || setgid(gid) != 0 ||
        (pw != NULL && setuid(pw->pw_uid) != 0)) {
        int err = -errno;
        log_error("cannot change to user %s, group %s: %s", user == NULL ? "-" : user,
                  group == NULL ? "-" : group, strerror(errno));
        return err;
    }
    return 0;
}

unsigned long process_raise_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 0;
    }
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? (unsigned long)limit.rlim_max : (unsigned long)before;
}
