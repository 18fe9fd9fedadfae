/* The processors that each thread of a process may run on, one line a thread, with the device open. */

#include <dirent.h>

#include "verbs.h"

int main(void)
{
    struct ibv_context *context = open_device();
    exchange(context);
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[512], line[512];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = task->d_name[0] == '.' ? NULL : fopen(path, "r");
        while (status && fgets(line, sizeof line, status))
            if (strncmp(line, "Cpus_allowed_list:", 18) == 0)
                fputs(line, stdout);
        if (status)
            fclose(status);
    }
    CHECK(closedir(tasks) == 0 && ibv_close_device(context) == 0);
}
