/* Commands to /dev/infiniband/rdma_cm without librdmacm. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_user_cm.h>

static int failures;

static inline void expect(const char *what, int found, int expected)
{
	if (found == expected)
		return;
	printf("%s: %d (%s), expected %d\n", what, found, strerror(found), expected);
	failures++;
}

/* Returns 0, or the error number. */
static inline int command(int fd, uint32_t cmd, const void *body, uint16_t in, uint16_t out)
{
	char buffer[8 + 512] = { 0 };
	struct rdma_ucm_cmd_hdr header = { .cmd = cmd, .in = in, .out = out };

	memcpy(buffer, &header, sizeof header);
	memcpy(buffer + sizeof header, body, in);
	return write(fd, buffer, sizeof header + in) == (ssize_t)(sizeof header + in) ? 0 : errno;
}

static inline int channel(int flags)
{
	int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC | flags);

	if (fd < 0) {
		perror("open");
		exit(1);
	}
	return fd;
}

static inline int create(int fd, uint16_t ps, uint32_t *id)
{
	struct rdma_ucm_create_id_resp answer = { 0 };
	struct rdma_ucm_create_id create = {
		.uid = 7, .response = (uintptr_t)&answer, .ps = ps, .qp_type = 2
	};
	int error = command(fd, RDMA_USER_CM_CMD_CREATE_ID, &create, sizeof create, sizeof answer);

	*id = answer.id;
	return error;
}

static inline int destroy(int fd, uint32_t id, uint32_t *events)
{
	struct rdma_ucm_destroy_id_resp answer = { 0 };
	struct rdma_ucm_destroy_id destroy = { .response = (uintptr_t)&answer, .id = id };
	int error = command(fd, RDMA_USER_CM_CMD_DESTROY_ID, &destroy, sizeof destroy, sizeof answer);

	*events = answer.events_reported;
	return error;
}

static inline int resolve(int fd, uint32_t id, const char *address)
{
	struct rdma_ucm_resolve_ip resolve = { .id = id, .timeout_ms = 1000 };
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(7471) };

	inet_pton(AF_INET, address, &to.sin_addr);
	memcpy(&resolve.dst_addr, &to, sizeof to);
	return command(fd, RDMA_USER_CM_CMD_RESOLVE_IP, &resolve, sizeof resolve, 0);
}

static inline int bind_ip(int fd, uint32_t id, const char *address)
{
	struct rdma_ucm_bind_ip bind = { .id = id };
	struct sockaddr_in to = { .sin_family = AF_INET };

	inet_pton(AF_INET, address, &to.sin_addr);
	memcpy(&bind.addr, &to, sizeof to);
	return command(fd, RDMA_USER_CM_CMD_BIND_IP, &bind, sizeof bind, 0);
}

static inline int listen_at(int fd, uint32_t id)
{
	struct rdma_ucm_listen listen = { .id = id, .backlog = 1 };

	return command(fd, RDMA_USER_CM_CMD_LISTEN, &listen, sizeof listen, 0);
}

static inline int event(int fd, struct rdma_ucm_event_resp *answer)
{
	struct rdma_ucm_get_event get = { .response = (uintptr_t)answer };

	return command(fd, RDMA_USER_CM_CMD_GET_EVENT, &get, sizeof get, sizeof *answer);
}
