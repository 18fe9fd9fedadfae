/* What the environment makes of a program: the name of its device, and where paths of devices lead. */

#include "verbs.h"

int main(void)
{
    puts(ibv_get_device_name(device()));
    puts(access("/sys/class/infiniband/probe", F_OK) == 0 ? "led" : "not led");
}
