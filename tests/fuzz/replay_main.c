/* Runs a fuzz target over the files given, and over those in the directories given: the corpus as a test. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

enum { MAX_INPUT_BYTES = 1 << 20 };

/* The buffer is exactly as large as the input, so that a sanitizer sees reads past its end. */
static int replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return -errno;
    }
    uint8_t *buffer = malloc(MAX_INPUT_BYTES);
    size_t n_bytes = buffer == NULL ? 0 : fread(buffer, 1, MAX_INPUT_BYTES, file);
    fclose(file);
    uint8_t *bytes = malloc(n_bytes > 0 ? n_bytes : 1);
    if (buffer == NULL || bytes == NULL) {
        free(buffer);
        free(bytes);
        return -ENOMEM;
    }
    memcpy(bytes, buffer, n_bytes);
    free(buffer);
    (void)LLVMFuzzerTestOneInput(bytes, n_bytes);
    free(bytes);
    return 0;
}

/* The number of inputs run, or -errno. */
static int replay_directory(const char *path) {
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return -errno;
    }
    int n_run = 0;
    for (const struct dirent *entry; n_run >= 0 && (entry = readdir(directory)) != NULL;) {
        char name[4096];
        int n = snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] == '.' || n < 0 || (size_t)n >= sizeof name) {
            continue;
        }
        int err = replay_file(name);
        n_run = err < 0 ? err : n_run + 1;
    }
    closedir(directory);
    return n_run;
}

int main(int argc, char **argv) {
    int n_run = 0;
    for (int i = 1; i < argc; i++) {
        int n = replay_directory(argv[i]);
        if (n == -ENOTDIR) {
            n = replay_file(argv[i]) < 0 ? -1 : 1;
        }
        if (n < 0) {
            fprintf(stderr, "%s: cannot be read\n", argv[i]);
            return 1;
        }
        n_run += n;
    }
    printf("%d inputs\n", n_run);
    return n_run > 0 ? 0 : 1; /* a corpus that is gone is no success */
}
