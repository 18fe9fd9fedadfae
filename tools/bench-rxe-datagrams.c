/* The datagrams of cmtime's connections between two processes over loopback, and nothing else: the limit of a connection
 * manager over UDP. Arguments: the number of connections. Prints connections a second.
 *
 * As in cmtime, each step is done for all connections before the next one: REQ and REP, RTU, DREQ and DREP. A datagram has
 * 280 bytes, as a management datagram in RoCEv2: BTH, DETH, MAD and ICRC. */
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LENGTH = 280, BUFFER = 16 << 20 };

static int sockets[2];
static struct sockaddr_in addresses[2];

static void open_socket(int side)
{
	int size = BUFFER;
	socklen_t length = sizeof(addresses[side]);

	addresses[side].sin_family = AF_INET;
	addresses[side].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sockets[side] = socket(AF_INET, SOCK_DGRAM, 0);
	if (sockets[side] < 0 || setsockopt(sockets[side], SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) < 0 ||
	    bind(sockets[side], (struct sockaddr *)&addresses[side], length) < 0 ||
	    getsockname(sockets[side], (struct sockaddr *)&addresses[side], &length) < 0)
		err(1, "socket");
}

static void transmit(int from, int count)
{
	char datagram[LENGTH] = {0};

	while (count--)
		if (sendto(sockets[from], datagram, LENGTH, 0, (struct sockaddr *)&addresses[!from],
			   sizeof(addresses[0])) != LENGTH)
			err(1, "sendto");
}

static void receive(int to, int count)
{
	char datagram[LENGTH];

	while (count--)
		if (recv(sockets[to], datagram, LENGTH, 0) != LENGTH)
			err(1, "recv");
}

static void answer(int side, int count)
{
	while (count--) {
		receive(side, 1);
		transmit(side, 1);
	}
}

int main(int argc, char **argv)
{
	int count = argc == 2 ? atoi(argv[1]) : 0;
	struct timespec begin, end;

	if (count <= 0)
		errx(1, "usage: %s CONNECTIONS", argv[0]);
	open_socket(0);
	open_socket(1);
	pid_t server = fork();
	if (server < 0)
		err(1, "fork");
	alarm(60);
	if (server == 0) {
		answer(1, count);
		receive(1, count);
		answer(1, count);
		_exit(0);
	}
	clock_gettime(CLOCK_MONOTONIC, &begin);
	transmit(0, count);
	answer(0, count);
	transmit(0, count);
	receive(0, count);
	clock_gettime(CLOCK_MONOTONIC, &end);
	waitpid(server, NULL, 0);
	printf("%.0f\n", count / (end.tv_sec - begin.tv_sec + (end.tv_nsec - begin.tv_nsec) * 1e-9));
	return 0;
}
