/* The load of the benches: one server, and clients that measure themselves.
 *
 *   load serve    ADDRESS PORT PORTS               a server on PORTS ports from PORT on
 *   load tunnels  HOST PORT PROXY COUNT BYTES      COUNT downloads of BYTES at once
 *   load calls    HOST PORT PROXY COUNT SECONDS    COUNT at a time: connect, a byte each way, close
 *   load requests HOST PORT PROXY COUNT SECONDS    COUNT connections of small GETs, one by one
 *   load idle     HOST PORT PROXY COUNT 0          COUNT tunnels that have carried a byte each way
 *   load stall    HOST PORT PROXY COUNT BYTES      COUNT downloads that nobody reads
 *
 * PROXY is a port of 127.0.0.1, or 0 to go straight to HOST, an address.  A client prints
 * "AMOUNT SECONDS" (bytes, calls or requests); `idle` and `stall` print it when all are
 * open and hold them until stdin ends, as the server does.  Whatever goes otherwise than it
 * should is one line on stderr and status 1; no client runs for longer than ALARM_S.
 *
 * The server answers what a connection begins with: "E" with "e"; "D<bytes>\n" with so many
 * bytes and a FIN; a GET with a small answer; and a CONNECT, for HAProxy, which has none of its
 * own and passes it on, with a 200.
 *
 * In C because in Python the load would be the bottleneck: its client and server take longer
 * for a small request than any of the proxies.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ALARM_S = 100, CHUNK = 256 * 1024, HEAD_MAX = 1024, EVENTS = 256 };

static const char ESTABLISHED[] = "HTTP/1.1 200 OK\r\n\r\n";
static const char ANSWER[] = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
                             "Content-Length: 13\r\n\r\nHello, world!";
static const char BODY[] = "Hello, world!";
static char zeros[CHUNK];

static void fail(const char *what, ...)
{
    va_list more;
    va_start(more, what);
    fputs("load: ", stderr);
    vfprintf(stderr, what, more);
    fprintf(stderr, " (%s)\n", strerror(errno));
    _exit(1);
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static struct sockaddr_in address_of(const char *text, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
        fail("%s is no IPv4 address", text);
    return address;
}

static void set(int fd, int level, int option)
{
    int one = 1;
    if (setsockopt(fd, level, option, &one, sizeof one) < 0)
        fail("setsockopt");
}

/* -- the server: one thread, level-triggered ----------------------------------------- */

struct peer {
    int fd, held, listens;
    long left; /* bytes of a download that are still to be sent */
    char head[HEAD_MAX + 1];
};

static void watch(int set_fd, int how, struct peer *peer, unsigned events)
{
    struct epoll_event event = {.events = events, .data.ptr = peer};
    if (epoll_ctl(set_fd, how, peer->fd, &event) < 0)
        fail("epoll_ctl");
}

static struct peer *new_peer(int fd)
{
    struct peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        fail("calloc");
    peer->fd = fd;
    return peer;
}

/* Take the first message off a peer's held bytes and answer it; 0 when it isn't whole. */
static int answer(int set_fd, struct peer *peer)
{
    char *end = NULL;
    const char *words = "e";
    peer->head[peer->held] = 0;
    switch (peer->head[0]) {
    case 'E':
        end = peer->head + 1;
        break;
    case 'D':
        words = "";
        if ((end = strchr(peer->head, '\n'))) {
            end++;
            peer->left = atol(peer->head + 1);
            watch(set_fd, EPOLL_CTL_MOD, peer, EPOLLOUT);
        }
        break;
    case 'C':
    case 'G':
        words = peer->head[0] == 'C' ? ESTABLISHED : ANSWER;
        if ((end = strstr(peer->head, "\r\n\r\n")))
            end += 4;
        break;
    default:
        return peer->held ? -1 : 0;
    }
    if (!end || !peer->held)
        return 0;
    if (*words && send(peer->fd, words, strlen(words), MSG_NOSIGNAL) < 0)
        return -1;
    peer->held -= end - peer->head;
    memmove(peer->head, end, peer->held);
    return 1;
}

static int talk(int set_fd, struct peer *peer, unsigned events)
{
    if (peer->left > 0 && events & EPOLLOUT) {
        ssize_t sent = send(peer->fd, zeros, peer->left < CHUNK ? peer->left : CHUNK,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0)
            return errno == EAGAIN ? 0 : -1;
        if ((peer->left -= sent) == 0) {
            shutdown(peer->fd, SHUT_WR);
            watch(set_fd, EPOLL_CTL_MOD, peer, EPOLLIN);
        }
        return 0;
    }
    if (events & (EPOLLERR | EPOLLHUP) && peer->left > 0)
        return -1;
    ssize_t size = recv(peer->fd, peer->head + peer->held, HEAD_MAX - peer->held, MSG_DONTWAIT);
    if (size <= 0)
        return size < 0 && errno == EAGAIN ? 0 : -1;
    peer->held += size;
    int more;
    while ((more = answer(set_fd, peer)) > 0)
        ;
    return more;
}

static void serve(const char *host, int port, int ports)
{
    int set_fd = epoll_create1(0);
    struct peer *stdin_peer = new_peer(0);
    watch(set_fd, EPOLL_CTL_ADD, stdin_peer, EPOLLIN);
    for (int at = 0; at < ports; at++) {
        struct sockaddr_in address = address_of(host, port + at);
        struct peer *door = new_peer(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        set(door->fd, SOL_SOCKET, SO_REUSEADDR);
        set(door->fd, IPPROTO_TCP, TCP_NODELAY);
        door->listens = 1;
        if (bind(door->fd, (void *)&address, sizeof address) < 0 || listen(door->fd, 4096) < 0)
            fail("listen on %s:%d", host, port + at);
        watch(set_fd, EPOLL_CTL_ADD, door, EPOLLIN);
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(set_fd, events, EVENTS, -1);
        for (int at = 0; at < count; at++) {
            struct peer *peer = events[at].data.ptr;
            if (peer == stdin_peer) {
                return;
            } else if (peer->listens) {
                int fd = accept4(peer->fd, NULL, NULL, 0);
                if (fd >= 0)
                    watch(set_fd, EPOLL_CTL_ADD, new_peer(fd), EPOLLIN);
            } else if (talk(set_fd, peer, events[at].events) < 0) {
                close(peer->fd);
                free(peer);
            }
        }
    }
}

/* -- the clients: a thread each, blocking --------------------------------------------- */

static struct {
    const char *host;
    int port, proxy, count;
    double amount;
    struct sockaddr_in dialled;
    char connect[512], request[512];
    pthread_barrier_t together;
    double until;
} load;

static void say(int fd, const char *words, size_t size)
{
    while (size) {
        ssize_t sent = send(fd, words, size, MSG_NOSIGNAL);
        if (sent <= 0)
            fail("send");
        words += sent;
        size -= sent;
    }
}

/* Read to `mark`, which ends the answer, and see that it is a 200. */
static void expect_200(int fd, const char *mark)
{
    char held[4096];
    size_t size = 0, length = strlen(mark);
    do {
        ssize_t got = recv(fd, held + size, sizeof held - 1 - size, 0);
        if (got <= 0)
            fail("an answer was cut short");
        size += got;
        held[size] = 0;
    } while (size < length || strcmp(held + size - length, mark));
    if (strncmp(held, "HTTP/1.1 200 ", 13))
        fail("the answer is %.60s", held);
}

static int dial(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0)
        fail("socket");
    set(fd, IPPROTO_TCP, TCP_NODELAY);
    if (connect(fd, (void *)&load.dialled, sizeof load.dialled) < 0)
        fail("connect");
    return fd;
}

static int tunnel(void)
{
    int fd = dial();
    if (load.proxy) {
        say(fd, load.connect, strlen(load.connect));
        expect_200(fd, "\r\n\r\n");
    }
    return fd;
}

static void a_byte_each_way(int fd)
{
    char byte;
    say(fd, "E", 1);
    if (recv(fd, &byte, 1, 0) != 1 || byte != 'e')
        fail("the byte did not come back");
}

static void *run_tunnel(void *result)
{
    char words[32], *buffer = malloc(CHUNK);
    int fd = tunnel();
    ssize_t got;
    long all = 0, size = sprintf(words, "D%.0f\n", load.amount);
    pthread_barrier_wait(&load.together);
    say(fd, words, size);
    while ((got = recv(fd, buffer, CHUNK, 0)) > 0)
        all += got;
    if (all != (long)load.amount)
        fail("%ld bytes came", all);
    close(fd);
    free(buffer);
    *(long *)result = all;
    return NULL;
}

static void *run_calls(void *result)
{
    pthread_barrier_wait(&load.together);
    while (now() < load.until) {
        int fd = tunnel();
        a_byte_each_way(fd);
        close(fd);
        ++*(long *)result;
    }
    return NULL;
}

static void *run_requests(void *result)
{
    size_t size = strlen(load.request);
    int fd = dial();
    pthread_barrier_wait(&load.together);
    while (now() < load.until) {
        say(fd, load.request, size);
        expect_200(fd, BODY);
        ++*(long *)result;
    }
    close(fd);
    return NULL;
}

/* Run `each` in COUNT threads from one moment on; print what they did and how long it took. */
static void measure(void *(*each)(void *))
{
    pthread_t *threads = calloc(load.count, sizeof *threads);
    long *results = calloc(load.count, sizeof *results), all = 0;
    pthread_barrier_init(&load.together, NULL, load.count + 1);
    load.until = 1e18;
    for (int at = 0; at < load.count; at++)
        if (pthread_create(threads + at, NULL, each, results + at))
            fail("pthread_create");
    double began = now();
    load.until = began + load.amount;
    pthread_barrier_wait(&load.together);
    if (each == run_tunnel)
        began = now(); /* its tunnels are open now */
    for (int at = 0; at < load.count; at++) {
        pthread_join(threads[at], NULL);
        all += results[at];
    }
    printf("%ld %.6f\n", all, now() - began);
}

/* Open COUNT tunnels and hold them until stdin ends. */
static void hold(int stalled)
{
    char words[32];
    double began = now();
    long size = sprintf(words, "D%.0f\n", load.amount);
    for (int at = 0; at < load.count; at++) {
        int fd = tunnel();
        if (stalled)
            say(fd, words, size);
        else
            a_byte_each_way(fd);
    }
    printf("%d %.6f\n", load.count, now() - began);
    fflush(stdout);
    while (read(0, words, sizeof words) > 0)
        ;
}

int main(int count, char **words)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (count == 5 && !strcmp(words[1], "serve")) {
        serve(words[2], atoi(words[3]), atoi(words[4]));
        return 0;
    }
    if (count != 7)
        fail("usage: load MODE HOST PORT PROXY COUNT AMOUNT");
    alarm(ALARM_S);
    load.host = words[2];
    load.port = atoi(words[3]);
    load.proxy = atoi(words[4]);
    load.count = atoi(words[5]);
    load.amount = atof(words[6]);
    load.dialled = load.proxy ? address_of("127.0.0.1", load.proxy)
                              : address_of(load.host, load.port);
    snprintf(load.connect, sizeof load.connect,
             "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\nUser-Agent: bench\r\n\r\n", load.host,
             load.port, load.host, load.port);
    snprintf(load.request, sizeof load.request,
             "GET %s%s%s%s/ HTTP/1.1\r\nHost: %s:%d\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n",
             load.proxy ? "http://" : "", load.proxy ? load.host : "", load.proxy ? ":" : "",
             load.proxy ? words[3] : "", load.host, load.port);
    if (!strcmp(words[1], "tunnels"))
        measure(run_tunnel);
    else if (!strcmp(words[1], "calls"))
        measure(run_calls);
    else if (!strcmp(words[1], "requests"))
        measure(run_requests);
    else if (!strcmp(words[1], "idle") || !strcmp(words[1], "stall"))
        hold(!strcmp(words[1], "stall"));
    else
        fail("no such load: %s", words[1]);
    return 0;
}
