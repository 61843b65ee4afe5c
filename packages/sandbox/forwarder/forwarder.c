// The forwarder: relays connections on loopback inside a sandbox to the trusted process outside, and answers DNS from a table.
//
// It runs as the sandbox's own user, in a network namespace that has no interface but loopback, and has no authority: it decides
// nothing and knows no secret. The trusted process tells it over the control connection where to listen and which names there
// are, and checks every connection again.
//
//   forwarder socket PATH   Each connection gets one to the unix socket PATH, which begins with a line that names the listener.
//                           Forks once all listeners are bound; exit status 0 says so.
//   forwarder frames        All connections share stdin and stdout, as frames with credit for each stream. Ends with its input.
//   forwarder enter PROGRAM [WORD…]   Outside, before a sandbox of level bubblewrap: becomes PROGRAM in a new network namespace in
//                           which an ordinary user may listen on every port. The sandbox gets no other.
//   forwarder git [WORD…]   Inside, as Git’s client for SSH: hands the words to the trusted process, which decides and runs ssh
//                           outside, and relays its streams. Ends with its exit status.
//
// Control lines from the trusted process: "listen ADDRESS PORT", "name HOST ADDRESS", "suffix .HOST", "forget" (all names; a
// batch begins with it), "dns" (listen on port 53), "answer NUMBER ADDRESS|none", "end" (of a batch). To it: "ready",
// "failed ADDRESS:PORT REASON", "ask NUMBER HOST".
//
// A frame is: stream (4 bytes), type (1), zero (1), length (2), payload; little endian. Types: O open, with the listener; D data;
// E end of one direction; R reset; W more credit (4 bytes). Stream 0 is the control connection.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum {
  MAX_CONNECTIONS = 1024,  // A power of two: part of the number of a stream.
  MAX_LISTENERS = 512,
  MAX_NAMES = 1024,
  MAX_SUFFIXES = 64,
  MAX_QUESTIONS = 64,  // Questions that wait for the trusted process; the oldest is forgotten.
  MAX_DNS_CLIENTS = 16,
  MAX_NAME = 253,
  MAX_LINE = 512,
  MAX_MESSAGE = 512,  // Of DNS.
  BLOCK = 65536,
  FRAME_BLOCK = 32768,
  WINDOW = 256 * 1024,  // Bytes of one stream on the way in one direction.
  START_SECONDS = 10,
  BACKLOG = 512,
};

enum kind { LISTENER, CONNECTION, CONTROL, DNS_DATAGRAMS, DNS_LISTENER, DNS_CLIENT };

// What epoll points to.
struct source {
  enum kind kind;
  int fd;
  uint32_t events;
};

struct listener {
  struct source source;
  char name[24];  // "127.255.255.255:65535\n"
};

// What could not be written yet; the memory is there only while there is something in it.
struct pending {
  char *data;
  uint32_t start, length;
};

// One end of a connection: the client inside, or the unix socket.
struct end {
  struct source source;
  struct connection *connection;
  struct end *peer;
  struct pending pending;
  bool ended;  // Nothing more can be read from it.
  bool shut;   // Nothing more will be written to it.
  bool gone;   // Closed on the other side in both directions.
};

struct connection {
  struct end client, relay;
  uint32_t stream;
  uint32_t credit;    // Bytes that may still be sent over frames.
  uint32_t consumed;  // Bytes that were passed on, and not yet given back as credit.
  bool used;
  struct connection *next;
};

struct name {
  uint8_t length;
  char text[MAX_NAME];
  struct in_addr address;
};

struct suffix {
  uint8_t length;
  char text[MAX_NAME];
};

// A DNS message over TCP, with its length before it.
struct dns_client {
  struct source source;
  uint32_t serial;
  uint16_t length;
  uint8_t data[2 + MAX_MESSAGE];
};

// A question for a name below a suffix. `client` is null for one that came as a datagram.
struct question {
  uint32_t number;
  struct dns_client *client;
  uint32_t serial;
  struct sockaddr_in from;
  uint16_t length;
  uint8_t message[MAX_MESSAGE];
};

static struct listener listeners[MAX_LISTENERS];
static struct connection connections[MAX_CONNECTIONS];
static struct connection *unused, *dropped;
static struct name names[MAX_NAMES];
static struct suffix suffixes[MAX_SUFFIXES];
static struct question questions[MAX_QUESTIONS];
static struct dns_client dns_clients[MAX_DNS_CLIENTS];
static struct source dns_datagrams = {DNS_DATAGRAMS, -1, 0}, dns_listener = {DNS_LISTENER, -1, 0};
static struct source control = {CONTROL, -1, 0};
static uint32_t listener_count, name_count, suffix_count, live, max_live, generation, question_number, serial;
static bool has_failed, uses_frames;
static int poller, spare = -1, started = -1;
static struct sockaddr_un relay_address = {.sun_family = AF_UNIX};
static char block[BLOCK];

static _Noreturn void fail(const char *what) {
  dprintf(2, "acode-forwarder: %s: %s\n", what, strerror(errno));
  _exit(1);
}

// ---- epoll

static void watch(struct source *source, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = source};
  source->events = events;
  if (epoll_ctl(poller, EPOLL_CTL_ADD, source->fd, &event)) fail("epoll");
}

static void want(struct source *source, uint32_t events) {
  if (source->fd < 0 || source->events == events) return;
  struct epoll_event event = {.events = events, .data.ptr = source};
  source->events = events;
  epoll_ctl(poller, EPOLL_CTL_MOD, source->fd, &event);
}

// ---- frames, and lines of the control connection

// Blocks: the trusted process always reads, and gives each stream only so much credit.
static void write_frame(uint32_t stream, char type, const void *payload, uint16_t length) {
  uint8_t header[8] = {(uint8_t)stream,       (uint8_t)(stream >> 8), (uint8_t)(stream >> 16), (uint8_t)(stream >> 24),
                       (uint8_t)type,         0,                      (uint8_t)length,         (uint8_t)(length >> 8)};
  struct iovec parts[2] = {{header, sizeof header}, {(void *)payload, length}};
  for (int part = 0; part < 2;) {
    ssize_t written = writev(1, parts + part, 2 - part);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) _exit(0);
    for (; part < 2 && (size_t)written >= parts[part].iov_len; part++) written -= (ssize_t)parts[part].iov_len;
    if (part < 2) {
      parts[part].iov_base = (char *)parts[part].iov_base + written;
      parts[part].iov_len -= (size_t)written;
    }
  }
}

// A line that finds no room is lost: whoever asked for a name asks again.
static void say(const char *line) {
  size_t length = strlen(line);
  if (uses_frames) write_frame(0, 'D', line, (uint16_t)length);
  else if (control.fd >= 0) (void)!send(control.fd, line, length, MSG_NOSIGNAL);
}

// ---- connections

static void drop(struct connection *connection) {
  if (!connection->used) return;
  connection->used = false;
  struct end *ends[2] = {&connection->client, &connection->relay};
  for (int i = 0; i < 2; i++) {
    if (ends[i]->source.fd >= 0) close(ends[i]->source.fd);
    ends[i]->source.fd = -1;
    free(ends[i]->pending.data);
    ends[i]->pending = (struct pending){0};
  }
  live--;
  // Used again only after this round: events of the old connection may still be in it.
  connection->next = dropped;
  dropped = connection;
}

static void reset(struct connection *connection) {
  if (uses_frames && connection->used) write_frame(connection->stream, 'R', NULL, 0);
  drop(connection);
}

static int connect_relay(void) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&relay_address, sizeof relay_address) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

static void accept_connection(struct listener *listener) {
  int fd = accept4(listener->source.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {  // Takes it and closes it; otherwise epoll would report it for ever.
    close(spare);
    fd = accept4(listener->source.fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) close(fd);
    spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return;
  }
  if (fd < 0) return;
  struct connection *connection = live < max_live ? unused : NULL;
  int relay = -1;
  if (connection && !uses_frames) {
    size_t length = strlen(listener->name);
    relay = connect_relay();
    if (relay < 0 || send(relay, listener->name, length, MSG_NOSIGNAL) != (ssize_t)length) connection = NULL;
  }
  if (!connection) {
    if (relay >= 0) close(relay);
    close(fd);
    return;
  }
  unused = connection->next;
  live++;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
  uint32_t index = (uint32_t)(connection - connections);
  generation = (generation % ((1u << 22) - 1)) + 1;  // Never 0, so that no stream has the number of the control connection.
  *connection = (struct connection){.stream = generation * MAX_CONNECTIONS + index, .credit = WINDOW, .used = true};
  connection->client = (struct end){{CONNECTION, fd, 0}, connection, &connection->relay, {0}, false, false, false};
  connection->relay = (struct end){{CONNECTION, relay, 0}, connection, &connection->client, {0}, false, false, false};
  if (uses_frames) write_frame(connection->stream, 'O', listener->name, (uint16_t)(strlen(listener->name) - 1));
  watch(&connection->client.source, EPOLLIN);
  if (!uses_frames) watch(&connection->relay.source, EPOLLIN);
}

static void shut(struct end *end) {
  if (end->shut || end->pending.length > 0) return;
  end->shut = true;
  if (end->source.fd >= 0) shutdown(end->source.fd, SHUT_WR);
}

// Writes to an end, and keeps what it does not take; at most a window. False if the end is gone.
static bool pass(struct end *to, const char *data, uint32_t length) {
  while (length > 0 && to->pending.length == 0) {
    ssize_t written = send(to->source.fd, data, length, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) break;
    if (written < 0) return false;
    data += written;
    length -= (uint32_t)written;
  }
  if (length == 0) return true;
  struct pending *pending = &to->pending;
  if (!pending->data) pending->data = malloc(WINDOW);
  if (!pending->data || length > WINDOW - pending->length) return false;
  if (pending->start > 0 && pending->start + pending->length + length > WINDOW) {
    memmove(pending->data, pending->data + pending->start, pending->length);
    pending->start = 0;
  }
  memcpy(pending->data + pending->start + pending->length, data, length);
  pending->length += length;
  return true;
}

// Credit for the trusted process, in parts of a quarter of the window.
static void give_credit(struct connection *connection, uint32_t length) {
  connection->consumed += length;
  if (connection->consumed < WINDOW / 4) return;
  uint32_t more = connection->consumed;
  uint8_t payload[4] = {(uint8_t)more, (uint8_t)(more >> 8), (uint8_t)(more >> 16), (uint8_t)(more >> 24)};
  connection->consumed = 0;
  write_frame(connection->stream, 'W', payload, sizeof payload);
}

static bool flush_end(struct end *end) {
  struct pending *pending = &end->pending;
  if (pending->length == 0) return true;
  ssize_t written = send(end->source.fd, pending->data + pending->start, pending->length, MSG_NOSIGNAL);
  if (written < 0) return errno == EAGAIN || errno == EINTR;
  pending->start += (uint32_t)written;
  pending->length -= (uint32_t)written;
  if (uses_frames) give_credit(end->connection, (uint32_t)written);
  if (pending->length > 0) return true;
  free(pending->data);
  *pending = (struct pending){0};
  if (end->peer->ended) shut(end);
  return true;
}

// Reads what there is from one end, if the other has room for it. False if the connection is broken.
static bool read_end(struct end *end) {
  struct connection *connection = end->connection;
  uint32_t room = uses_frames ? connection->credit : BLOCK;
  if (end->ended || room == 0 || end->peer->pending.length > 0) return true;
  if (uses_frames && room > FRAME_BLOCK) room = FRAME_BLOCK;
  ssize_t length = recv(end->source.fd, block, room, 0);
  if (length < 0) return errno == EAGAIN || errno == EINTR;
  if (length == 0) {
    end->ended = true;
    if (uses_frames) write_frame(connection->stream, 'E', NULL, 0);
    else shut(end->peer);
    return true;
  }
  if (!uses_frames) return pass(end->peer, block, (uint32_t)length);
  connection->credit -= (uint32_t)length;
  write_frame(connection->stream, 'D', block, (uint16_t)length);
  return true;
}

static void want_again(struct connection *connection, struct end *end) {
  if (end->source.fd < 0 || end->gone) return;
  bool reads = !end->ended && end->peer->pending.length == 0 && (!uses_frames || connection->credit > 0);
  want(&end->source, (reads ? EPOLLIN : 0u) | (end->pending.length > 0 ? EPOLLOUT : 0u));
}

// Ends a connection that has nothing left to do, or says what is waited for.
static void settle(struct connection *connection) {
  struct end *client = &connection->client, *relay = &connection->relay;
  bool over = client->shut && (uses_frames ? client->ended : relay->shut);
  if ((client->gone && relay->pending.length == 0) || (relay->gone && client->pending.length == 0)) over = true;
  if (over) {
    drop(connection);
    return;
  }
  want_again(connection, client);
  want_again(connection, relay);
}

static void on_connection(struct end *end, uint32_t events) {
  struct connection *connection = end->connection;
  if (!connection->used) return;
  bool works = (events & EPOLLERR) == 0 || !end->ended;
  if (works && (events & EPOLLOUT)) works = flush_end(end);
  if (works && (events & (EPOLLIN | EPOLLHUP | EPOLLERR))) works = read_end(end);
  if (!works) {
    reset(connection);
    return;
  }
  if ((events & EPOLLHUP) && end->ended && !end->gone) {  // Would be reported for ever.
    end->gone = true;
    epoll_ctl(poller, EPOLL_CTL_DEL, end->source.fd, NULL);
  }
  settle(connection);
}

// ---- DNS: answers from the table alone

enum { NO_ERROR = 0, BAD_FORMAT = 1, NO_NAME = 3, NOT_IMPLEMENTED = 4, TYPE_A = 1, CLASS_IN = 1, HEADER = 12 };

static void reply(struct dns_client *client, const struct sockaddr_in *to, uint8_t *message, uint16_t length) {
  if (!client) {
    sendto(dns_datagrams.fd, message, length, MSG_DONTWAIT, (const struct sockaddr *)to, sizeof *to);
    return;
  }
  uint8_t framed[2 + MAX_MESSAGE + 16] = {(uint8_t)(length >> 8), (uint8_t)length};
  memcpy(framed + 2, message, length);
  if (send(client->source.fd, framed, length + 2u, MSG_NOSIGNAL) == length + 2) return;
  close(client->source.fd);
  client->source.fd = -1;
}

// Makes the answer out of the message: its header, its question, which ends at `end`, and the address if there is one.
static void answer(struct dns_client *client, const struct sockaddr_in *to, const uint8_t *message, uint16_t end, int code,
                   const struct in_addr *address) {
  uint8_t out[MAX_MESSAGE + 16];
  memcpy(out, message, end);
  out[2] = (uint8_t)(0x84 | (message[2] & 0x79));  // An answer, from who knows; opcode and recursion as asked.
  out[3] = (uint8_t)(0x80 | code);
  memset(out + 4, 0, HEADER - 4);
  if (end > HEADER) out[5] = 1;
  if (address) {
    static const uint8_t record[12] = {0xc0, HEADER, 0, TYPE_A, 0, CLASS_IN, 0, 0, 0, 5, 0, 4};
    out[7] = 1;
    memcpy(out + end, record, sizeof record);
    memcpy(out + end + sizeof record, address, 4);
    end = (uint16_t)(end + sizeof record + 4);
  }
  reply(client, to, out, end);
}

// Reads the one question of a message into dotted lower case. Where it ends, or 0 if it is malformed.
static uint16_t read_question(const uint8_t *message, uint16_t length, char *host, uint8_t *host_length, uint16_t *type) {
  uint16_t at = HEADER;
  unsigned used = 0;
  for (;;) {
    if (at >= length) return 0;
    uint8_t label = message[at++];
    if (label == 0) break;
    if (label > 63 || at + label > length || used + label + 1u > MAX_NAME) return 0;
    if (used > 0) host[used++] = '.';
    for (; label > 0; label--) {
      uint8_t byte = message[at++];
      if (byte >= 'A' && byte <= 'Z') byte = (uint8_t)(byte - 'A' + 'a');
      // Anything else is in no table, and must not become part of a control line.
      if (!((byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || byte == '-' || byte == '_')) byte = '?';
      host[used++] = (char)byte;
    }
  }
  if (at + 4 > length) return 0;
  *type = (uint16_t)(message[at + 2] == 0 && message[at + 3] == CLASS_IN ? message[at] << 8 | message[at + 1] : 0);
  *host_length = (uint8_t)used;
  return (uint16_t)(at + 4);
}

static const struct name *find_name(const char *host, uint8_t length) {
  for (uint32_t i = 0; i < name_count; i++)
    if (names[i].length == length && memcmp(names[i].text, host, length) == 0) return &names[i];
  return NULL;
}

static bool has_suffix(const char *host, uint8_t length) {
  for (uint32_t i = 0; i < suffix_count; i++) {
    uint8_t end = suffixes[i].length;
    if (length > end && memcmp(host + length - end, suffixes[i].text, end) == 0 && !memchr(host, '?', length)) return true;
  }
  return false;
}

static void on_message(struct dns_client *client, const struct sockaddr_in *from, const uint8_t *message, uint16_t length) {
  char host[MAX_NAME + 1];
  uint8_t host_length = 0;
  uint16_t type = 0;
  if (length < HEADER || (message[2] & 0x80)) return;  // Too short to be answered, or itself an answer.
  if (message[2] & 0x78) return answer(client, from, message, HEADER, NOT_IMPLEMENTED, NULL);
  bool is_one = message[4] == 0 && message[5] == 1;
  uint16_t end = is_one ? read_question(message, length, host, &host_length, &type) : 0;
  if (end == 0) return answer(client, from, message, HEADER, BAD_FORMAT, NULL);
  const struct name *name = find_name(host, host_length);
  if (name) return answer(client, from, message, end, NO_ERROR, type == TYPE_A ? &name->address : NULL);
  if (!has_suffix(host, host_length)) return answer(client, from, message, end, NO_NAME, NULL);
  if (type != TYPE_A) return answer(client, from, message, end, NO_ERROR, NULL);
  struct question *question = &questions[++question_number % MAX_QUESTIONS];
  *question = (struct question){.number = question_number, .client = client, .from = *from, .length = end};
  if (client) question->serial = client->serial;
  memcpy(question->message, message, end);
  host[host_length] = 0;
  char line[MAX_LINE];
  snprintf(line, sizeof line, "ask %u %s\n", question->number, host);
  say(line);
}

static void on_datagram(void) {
  uint8_t message[MAX_MESSAGE];
  struct sockaddr_in from;
  socklen_t size = sizeof from;
  ssize_t length = recvfrom(dns_datagrams.fd, message, sizeof message, MSG_DONTWAIT, (struct sockaddr *)&from, &size);
  if (length > 0 && size == sizeof from) on_message(NULL, &from, message, (uint16_t)length);
}

// A new client takes a free place, or that of the oldest.
static void accept_dns_client(void) {
  int fd = accept4(dns_listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return;
  struct dns_client *client = &dns_clients[0];
  for (int i = 0; i < MAX_DNS_CLIENTS && client->source.fd >= 0; i++)
    if (dns_clients[i].source.fd < 0 || dns_clients[i].serial < client->serial) client = &dns_clients[i];
  if (client->source.fd >= 0) close(client->source.fd);
  *client = (struct dns_client){.source = {DNS_CLIENT, fd, 0}, .serial = ++serial};
  watch(&client->source, EPOLLIN);
}

static void on_dns_client(struct dns_client *client) {
  static const struct sockaddr_in nobody;
  if (client->source.fd < 0) return;
  ssize_t got = recv(client->source.fd, client->data + client->length, sizeof client->data - client->length, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) client->length = (uint16_t)(client->length + got);
  uint16_t wanted = (uint16_t)(client->data[0] << 8 | client->data[1]);
  if (got <= 0 || (client->length >= 2 && wanted > MAX_MESSAGE)) {
    close(client->source.fd);
    client->source.fd = -1;
    return;
  }
  while (client->source.fd >= 0 && client->length >= 2) {
    wanted = (uint16_t)(client->data[0] << 8 | client->data[1]);
    if (wanted > MAX_MESSAGE || client->length < wanted + 2) return;
    on_message(client, &nobody, client->data + 2, wanted);
    client->length = (uint16_t)(client->length - wanted - 2);
    memmove(client->data, client->data + 2 + wanted, client->length);
  }
}

// ---- control

static int bound(int type, struct in_addr address, uint16_t port) {
  struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = address};
  int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (type == SOCK_STREAM) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
  if (bind(fd, (struct sockaddr *)&where, sizeof where) == 0 && (type != SOCK_STREAM || listen(fd, BACKLOG) == 0)) return fd;
  int reason = errno;
  close(fd);
  errno = reason;
  return -1;
}

static void listen_failed(const char *address, uint16_t port) {
  char line[MAX_LINE];
  has_failed = true;
  snprintf(line, sizeof line, "failed %s:%u %s\n", address, port, strerror(errno));
  say(line);
}

static void listen_at(const char *text, uint16_t port) {
  struct in_addr address;
  char name[sizeof listeners[0].name];
  // Loopback alone: whatever it is told, it never offers anything to a network.
  if (inet_pton(AF_INET, text, &address) != 1 || ntohl(address.s_addr) >> 24 != 127 || port == 0) return;
  snprintf(name, sizeof name, "%s:%u\n", text, port);
  for (uint32_t i = 0; i < listener_count; i++)
    if (strcmp(listeners[i].name, name) == 0) return;
  errno = ENOSPC;
  int fd = listener_count < MAX_LISTENERS ? bound(SOCK_STREAM, address, port) : -1;
  if (fd < 0) return listen_failed(text, port);
  struct listener *listener = &listeners[listener_count++];
  *listener = (struct listener){.source = {LISTENER, fd, 0}};
  memcpy(listener->name, name, sizeof name);
  watch(&listener->source, EPOLLIN);
}

static void listen_dns(void) {
  struct in_addr address = {htonl(INADDR_LOOPBACK)};
  if (dns_listener.fd >= 0) return;
  dns_datagrams.fd = bound(SOCK_DGRAM, address, 53);
  if (dns_datagrams.fd < 0) return listen_failed("127.0.0.1", 53);
  dns_listener.fd = bound(SOCK_STREAM, address, 53);
  if (dns_listener.fd < 0) return listen_failed("127.0.0.1", 53);
  watch(&dns_datagrams, EPOLLIN);
  watch(&dns_listener, EPOLLIN);
}

static void add_name(const char *host, const char *text) {
  size_t length = strlen(host);
  struct in_addr address;
  if (length == 0 || length > MAX_NAME || name_count == MAX_NAMES || inet_pton(AF_INET, text, &address) != 1) return;
  if (ntohl(address.s_addr) >> 24 != 127 || find_name(host, (uint8_t)length)) return;
  struct name *name = &names[name_count++];
  name->length = (uint8_t)length;
  name->address = address;
  memcpy(name->text, host, length);
}

static void add_suffix(const char *text) {
  size_t length = strlen(text);
  if (length < 2 || length > MAX_NAME || text[0] != '.' || suffix_count == MAX_SUFFIXES) return;
  struct suffix *suffix = &suffixes[suffix_count++];
  suffix->length = (uint8_t)length;
  memcpy(suffix->text, text, length);
}

static void on_answer(uint32_t number, const char *text) {
  struct question *question = &questions[number % MAX_QUESTIONS];
  struct in_addr address;
  if (number == 0 || question->number != number) return;
  question->number = 0;
  struct dns_client *client = question->client;
  if (client && (client->source.fd < 0 || client->serial != question->serial)) return;
  bool is_found = inet_pton(AF_INET, text, &address) == 1;
  answer(client, &question->from, question->message, question->length, is_found ? NO_ERROR : NO_NAME,
         is_found ? &address : NULL);
}

// A batch begins with it.
static void forget(void) {
  name_count = suffix_count = 0;
  has_failed = false;
}

// Everything is bound, or something is not: says so, and lets whoever started this process go on.
static void end_batch(void) {
  if (!has_failed) say("ready\n");
  if (started < 0) return;
  if (has_failed) _exit(1);
  int nothing = open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; fd++) dup2(nothing, fd);
  close(nothing);
  (void)!write(started, "", 1);
  close(started);
  started = -1;
}

static void on_line(char *line) {
  char *words[3] = {NULL};
  int count = 0;
  for (char *word = strtok(line, " "); word && count < 3; word = strtok(NULL, " ")) words[count++] = word;
  if (count == 3 && strcmp(words[0], "listen") == 0) listen_at(words[1], (uint16_t)strtoul(words[2], NULL, 10));
  else if (count == 3 && strcmp(words[0], "name") == 0) add_name(words[1], words[2]);
  else if (count == 2 && strcmp(words[0], "suffix") == 0) add_suffix(words[1]);
  else if (count == 3 && strcmp(words[0], "answer") == 0) on_answer((uint32_t)strtoul(words[1], NULL, 10), words[2]);
  else if (count == 1 && strcmp(words[0], "forget") == 0) forget();
  else if (count == 1 && strcmp(words[0], "dns") == 0) listen_dns();
  else if (count == 1 && strcmp(words[0], "end") == 0) end_batch();
}

// Lines may come in any parts; one that is too long is skipped.
static void on_control(const char *data, size_t length) {
  static char line[MAX_LINE];
  static size_t used;
  for (size_t i = 0; i < length; i++) {
    if (data[i] != '\n') {
      if (used < MAX_LINE) line[used++] = data[i];
      continue;
    }
    if (used < MAX_LINE) {
      line[used] = 0;
      on_line(line);
    }
    used = 0;
  }
}

// ---- frames from the trusted process

static void on_frame(uint32_t stream, char type, const char *payload, uint16_t length) {
  if (stream == 0) {
    if (type == 'D') on_control(payload, length);
    return;
  }
  struct connection *connection = &connections[stream % MAX_CONNECTIONS];
  if (!connection->used || connection->stream != stream) return;  // It has ended here, and the other side does not know yet.
  struct end *client = &connection->client;
  if (type == 'D') {
    uint32_t before = client->pending.length;
    if (!pass(client, payload, length)) return reset(connection);
    give_credit(connection, length - (client->pending.length - before));
  } else if (type == 'E') {
    connection->relay.ended = true;
    shut(client);
  } else if (type == 'R') {
    setsockopt(client->source.fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    return drop(connection);
  } else if (type == 'W' && length == 4) {
    const uint8_t *bytes = (const uint8_t *)payload;
    uint32_t more = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    if (more > WINDOW - connection->credit) return reset(connection);
    connection->credit += more;
  }
  settle(connection);
}

static void on_input(void) {
  static char input[2 * BLOCK + 8];  // One frame always fits.
  static size_t used;
  ssize_t got = read(0, input + used, sizeof input - used);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) _exit(0);  // The trusted process is gone.
  used += (size_t)got;
  size_t at = 0;
  while (used - at >= 8) {
    const uint8_t *header = (const uint8_t *)input + at;
    uint16_t length = (uint16_t)(header[6] | header[7] << 8);
    if (used - at < 8u + length) break;
    uint32_t stream = header[0] | (uint32_t)header[1] << 8 | (uint32_t)header[2] << 16 | (uint32_t)header[3] << 24;
    on_frame(stream, (char)header[4], input + at + 8, length);
    at += 8u + length;
  }
  memmove(input, input + at, used - at);
  used -= at;
}

static void on_control_socket(void) {
  ssize_t got = recv(control.fd, block, sizeof block, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) _exit(0);  // The trusted process is gone.
  on_control(block, (size_t)got);
}

// ---- start

// No signal of a command to "everything" ends its network by accident, and no debugger of the same user reads this process.
static void harden(void) {
  static const int ignored[] = {SIGPIPE, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
  for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
  if (prctl(PR_SET_DUMPABLE, 0)) fail("prctl");
}

// The process that was started waits until its child says that everything is bound.
static void fork_until_ready(void) {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC)) fail("pipe");
  pid_t child = fork();
  if (child < 0) fail("fork");
  if (child > 0) {
    char word;
    close(ready[1]);
    signal(SIGALRM, SIG_DFL);
    alarm(START_SECONDS);
    _exit(read(ready[0], &word, 1) == 1 ? 0 : 1);
  }
  close(ready[0]);
  harden();
  setsid();
  // Whatever was inherited: an open end of a pipe would keep its reader waiting for as long as this process lives.
  for (int fd = 3; fd < 1024; fd++)
    if (fd != ready[1]) close(fd);
  started = ready[1];
}

static void start_socket(const char *path) {
  if (strlen(path) >= sizeof relay_address.sun_path) {
    errno = ENAMETOOLONG;
    fail(path);
  }
  memcpy(relay_address.sun_path, path, strlen(path) + 1);
  fork_until_ready();
}

static void limit_connections(void) {
  struct rlimit files;
  max_live = MAX_CONNECTIONS;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 3 * MAX_CONNECTIONS) max_live = (uint32_t)files.rlim_cur / 4;
  for (int i = MAX_CONNECTIONS - 1; i >= 0; i--) {
    connections[i].next = unused;
    unused = &connections[i];
  }
  for (int i = 0; i < MAX_DNS_CLIENTS; i++) dns_clients[i].source.fd = -1;
}

static void dispatch(struct source *source, uint32_t events) {
  switch (source->kind) {
    case LISTENER: return accept_connection((struct listener *)source);
    case CONNECTION: return on_connection((struct end *)source, events);
    case CONTROL: return uses_frames ? on_input() : on_control_socket();
    case DNS_DATAGRAMS: return on_datagram();
    case DNS_LISTENER: return accept_dns_client();
    case DNS_CLIENT: return on_dns_client((struct dns_client *)source);
  }
}

static void write_setting(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text)) fail(path);
  close(fd);
}

// The user keeps its number and so loses every capability of the new user namespace with the program that it becomes.
static void enter(char **program) {
  char map[48];
  unsigned uid = getuid(), gid = getgid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET)) fail("unshare");
  write_setting("/proc/self/setgroups", "deny");
  snprintf(map, sizeof map, "%u %u 1", uid, uid);
  write_setting("/proc/self/uid_map", map);
  snprintf(map, sizeof map, "%u %u 1", gid, gid);
  write_setting("/proc/self/gid_map", map);
  write_setting("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
  struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &loopback)) fail("lo");
  close(fd);
  execv(program[0], program);
  fail(program[0]);
}

// ---- git: the client for SSH inside; proxy/git.ts is the other side

enum { GIT_ADDRESS = 0x7f070001, GIT_PORT = 9418, GIT_REQUEST = 4094, GIT_PIECE = 4096, GIT_FAILED = 255 };

static _Noreturn void git_failed(const char *why) {
  dprintf(2, "acode: %s\n", why);
  _exit(GIT_FAILED);
}

static void write_whole(int fd, const char *data, size_t length) {
  while (length > 0) {
    ssize_t written = write(fd, data, length);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) _exit(GIT_FAILED);
    data += written;
    length -= (size_t)written;
  }
}

static int ask_git(char **words) {
  static char request[2 + GIT_REQUEST];
  struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(GIT_PORT), .sin_addr.s_addr = htonl(GIT_ADDRESS)};
  const char *version = getenv("GIT_PROTOCOL"), *word = version ? version : "";
  size_t used = 2;
  for (; word; word = *words++) {
    size_t length = strlen(word) + 1;
    if (length > sizeof request - used) git_failed("the request of git is too long");
    memcpy(request + used, word, length);
    used += length;
  }
  request[0] = (char)(used - 2);
  request[1] = (char)((used - 2) >> 8);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&where, sizeof where)) git_failed("no repository over SSH is in the allow-list");
  write_whole(fd, request, used);
  return fd;
}

// Never waits for one stream while another has something: Git may do the same at its ends.
static _Noreturn void git_ssh(char **words) {
  static char input[BLOCK], frames[BLOCK];
  size_t sent = 0, filled = 0, start = 0, used = 0, left = 0;
  char type = 0;
  bool ended = false;
  int fd = ask_git(words);
  for (;;) {
    while (left == 0 && used >= 4) {
      type = frames[start];
      left = (uint8_t)frames[start + 2] | (size_t)(uint8_t)frames[start + 3] << 8;
      start += 4;
      used -= 4;
    }
    size_t part = left < used ? left : used;
    if (part > 0 && type == 'X') _exit((uint8_t)frames[start]);
    bool prints = part > 0 && type == 'O';
    struct pollfd streams[3] = {
        {.fd = ended || filled > 0 ? -1 : 0, .events = POLLIN},
        {.fd = part == 0 || filled > 0 ? fd : -1, .events = (short)((part == 0 ? POLLIN : 0) | (filled > 0 ? POLLOUT : 0))},
        {.fd = prints ? 1 : -1, .events = POLLOUT},
    };
    bool reads = part == 0;
    if (part > 0 && type != 'O') {
      if (type == 'E') write_whole(2, frames + start, part);
    } else {
      if (poll(streams, 3, -1) < 0) {
        if (errno == EINTR) continue;
        fail("poll");
      }
      part = prints && streams[2].revents ? (part < GIT_PIECE ? part : GIT_PIECE) : 0;
      // A pipe that is ready takes this much at once.
      if (part > 0) write_whole(1, frames + start, part);
    }
    start += part;
    used -= part;
    left -= part;
    if (reads && (streams[1].revents & (POLLIN | POLLHUP | POLLERR))) {
      memmove(frames, frames + start, used);
      start = 0;
      ssize_t got = recv(fd, frames + used, sizeof frames - used, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) git_failed("the connection to the repository ended");
      if (got > 0) used += (size_t)got;
    }
    if (streams[0].revents) {
      ssize_t got = read(0, input, sizeof input);
      if (got > 0) filled = (size_t)got;
      else if (got == 0 || errno != EINTR) ended = true;
      if (ended) shutdown(fd, SHUT_WR);
    }
    if (filled > 0 && (streams[1].revents & (POLLOUT | POLLHUP | POLLERR))) {
      ssize_t written = send(fd, input + sent, filled - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (written > 0) sent += (size_t)written;
      if (written < 0 && errno != EAGAIN && errno != EINTR) sent = filled;  // What it still says is read nevertheless.
      if (sent == filled) sent = filled = 0;
    }
  }
}

int main(int count, char **words) {
  if (count > 2 && strcmp(words[1], "enter") == 0) enter(words + 2);
  if (count > 1 && strcmp(words[1], "git") == 0) git_ssh(words + 2);
  harden();
  uses_frames = count == 2 && strcmp(words[1], "frames") == 0;
  if (!uses_frames && !(count == 3 && strcmp(words[1], "socket") == 0)) {
    dprintf(2, "usage: forwarder socket PATH | frames | enter PROGRAM [WORD]... | git [WORD]...\n");
    return 2;
  }
  if (!uses_frames) start_socket(words[2]);
  if ((poller = epoll_create1(EPOLL_CLOEXEC)) < 0) fail("epoll");
  spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  limit_connections();
  control.fd = uses_frames ? 0 : connect_relay();
  if (control.fd < 0) fail("connect");
  watch(&control, EPOLLIN);
  say(uses_frames ? "hello\n" : "control\n");
  for (struct epoll_event events[64];;) {
    int ready = epoll_wait(poller, events, 64, -1);
    if (ready < 0 && errno != EINTR) fail("epoll");
    for (int i = 0; i < ready; i++) dispatch(events[i].data.ptr, events[i].events);
    while (dropped) {
      struct connection *connection = dropped;
      dropped = connection->next;
      connection->next = unused;
      unused = connection;
    }
  }
}
