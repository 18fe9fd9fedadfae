/* A TCP server and client with the calls that rsockets has: tcp ADDRESS PORT [FILE]. The client, which has a file, sends
 * it and its length; the server returns every byte, and the client compares. */

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void check(int is_good, const char *what)
{
	if (is_good)
		return;
	perror(what);
	exit(1);
}

static void transfer(int fd, char *bytes, size_t len, int is_write)
{
	size_t done = 0;

	while (done < len) {
		ssize_t moved = is_write ? write(fd, bytes + done, len - done) : read(fd, bytes + done, len - done);

		check(moved > 0, is_write ? "write" : "read");
		done += (size_t)moved;
	}
}

static void serve(int fd)
{
	uint64_t len;
	char *bytes;
	int peer;

	check(!listen(fd, 1), "listen");
	peer = accept(fd, NULL, NULL);
	check(peer >= 0, "accept");
	transfer(peer, (char *)&len, sizeof len, 0);
	check(len < 1 << 28, "length");
	bytes = malloc(len);
	check(bytes != NULL, "malloc");
	transfer(peer, bytes, len, 0);
	transfer(peer, bytes, len, 1);
	/* The client closes first. */
	check(read(peer, bytes, 1) == 0, "end");
	close(peer);
}

static void request(int fd, const char *path)
{
	static char sent[1 << 24], back[sizeof sent];
	FILE *file = fopen(path, "r");
	uint64_t len;

	check(file != NULL, path);
	len = fread(sent, 1, sizeof sent, file);
	transfer(fd, (char *)&len, sizeof len, 1);
	transfer(fd, sent, len, 1);
	transfer(fd, back, len, 0);
	check(!memcmp(sent, back, len), "compare");
	check(!shutdown(fd, SHUT_RDWR), "shutdown");
	printf("%llu bytes are the same\n", (unsigned long long)len);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (argc < 3)
		return 2;
	check(fd >= 0, "socket");
	inet_pton(AF_INET, argv[1], &address.sin_addr);
	address.sin_port = htons((uint16_t)atoi(argv[2]));
	if (argc > 3) {
		check(!connect(fd, (struct sockaddr *)&address, sizeof address), "connect");
		request(fd, argv[3]);
	} else {
		check(!bind(fd, (struct sockaddr *)&address, sizeof address), "bind");
		serve(fd);
	}
	close(fd);
	return 0;
}
