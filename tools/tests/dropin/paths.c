/* Paths to the files of a device that are no plain prefix of them: `..`, patterns, and walks. */

#define _GNU_SOURCE
#include <ftw.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CHECK(what)                                                                            \
    do {                                                                                       \
        if (!(what)) {                                                                         \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                         \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

static int gids, directories;

static int visit(const char *path, const struct stat *status, int type, struct FTW *at)
{
    (void)status, (void)at;
    directories += type == FTW_D;
    gids += strstr(path, "/gids/") != NULL;
    return 0;
}

static int visit_plainly(const char *path, const struct stat *status, int type)
{
    return visit(path, status, type, NULL);
}

/* What a walk has found since the last call. */
static int is_walked(void)
{
    int is = gids > 1 && directories > 3;
    gids = directories = 0;
    return is;
}

int main(void)
{
    struct stat status;
    CHECK(stat("/sys/class/../class/infiniband/mine/ports/1", &status) == 0);
    CHECK(stat("/sys/./class//infiniband/mine", &status) == 0);
    CHECK(stat("/dev/infiniband/../infiniband/uverbs0", &status) == 0);
    CHECK(stat("/sys/class/infiniband/../net/lo", &status) == 0);
    CHECK(stat("/sys/class/infiniband/mine/../theirs", &status) != 0);

    glob_t found;
    CHECK(glob("/sys/class/infiniband/*/ports/*/gids/*", 0, NULL, &found) == 0);
    CHECK(found.gl_pathc > 1 && stat(found.gl_pathv[0], &status) == 0);
    globfree(&found);
    CHECK(glob("/sys/class/net/lo", 0, NULL, &found) == 0);
    CHECK(strcmp(found.gl_pathv[0], "/sys/class/net/lo") == 0);
    globfree(&found);

    CHECK(nftw("/sys/class/infiniband", visit, 8, FTW_PHYS) == 0 && is_walked());
    CHECK(ftw("/sys/class/infiniband/mine", visit_plainly, 8) == 0 && is_walked());
    puts("every path leads there");
}
