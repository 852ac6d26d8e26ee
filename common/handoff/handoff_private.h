// What the files of the hand-off share; nobody else includes it. All of it lives on the fabric
// thread, except the two command queues, the event queue and the published statistics.
//
//   handoff.c   API, thread, commands, events        wire.c   messages to and from a peer
//   pair.c      pairs: greeting, probe, failure      send.c, receive.c   transfers
//   admit.c     who may connect
//
// Every change of state goes through table.h; the files here turn what happens into its events and
// carry its actions out.
#pragma once

#include "handoff/handoff.h"

#include "handoff/table.h"
#include "net/fabric.h"
#include "net/message.h"

#include <pthread.h>

#define HANDOFF_TAG "handoff"
#define HANDOFF_PEERS_MAX 256u      // at a time: those that stay, and those that come and go
#define HANDOFF_TRANSFERS_MAX 1024u // of each side, half-open ones included
#define HANDOFF_EARLY_MAX 512u      // seats that wait for their ticket to reach this worker
#define HANDOFF_COMMANDS 2048u
#define HANDOFF_COMMAND_PAGES 64
#define HANDOFF_PROBE_BYTES (1u << 20)
#define HANDOFF_PROBE_ROUNDS 2u // the first warms the connection, the last is timed
#define HANDOFF_NOTES 64u
#define HANDOFF_ADMISSIONS 4096u // that were not used yet, the last ones
#define HANDOFF_ENDED 1024u      // sends that are over, whose seats may still open
_Static_assert(HANDOFF_MADE_MAX == MESSAGE_MADE_MAX, "a record's tokens fit its message");

// What a fabric token names: its top byte is the kind.
#define HANDOFF_TOKEN_PROBE ((uint64_t)1 << 56)
#define HANDOFF_TOKEN_RUN ((uint64_t)2 << 56)

typedef enum command_kind {
    COMMAND_SEND_BEGIN,
    COMMAND_SEND_PAGES,
    COMMAND_SEND_END,
    COMMAND_SEND_CANCEL,
    COMMAND_ADMIT,
    COMMAND_SEAT_OPEN, // repeated until all pages of the seat were named
    COMMAND_SEAT_CLOSE,
    COMMAND_STOP,
} command_kind;

typedef struct handoff_command {
    command_kind kind;
    handoff_key key;
    handoff_peer peer; // SEAT_OPEN: only its incarnation; ADMIT: also its token
    uint64_t generation;
    int32_t first, count; // of the pages below, in the sequence
    int32_t page_count, first_page;
    handoff_record record;
    int32_t pages[HANDOFF_COMMAND_PAGES];
} handoff_command;

typedef struct event_box event_box;
struct event_box {
    handoff_event event; // first: what the step thread frees
    event_box *next;
};

typedef struct handoff_pair {
    uint8_t state; // pair_state
    bool client;   // this side connected: it is the prefill worker
    fabric_peer peer;
    uint64_t incarnation;     // of the peer; 0: has not been admitted
    handoff_token token;      // client: what it shows
    message_fabric *greeting; // the Hello of a peer that is not admitted yet
    char address[80];
    uint64_t deadline_us; // of the set-up
    uint32_t round;
    uint8_t *probe;      // incoming probe data
    uint32_t probe_held; // requests that use `probe` or the pattern
    uint64_t probe_checksum, probe_begin_us, probe_us;
    status code; // why it ends
    uint32_t next_send;
    uint64_t used_us; // when a transfer, or the word that one may come, needed it last
} handoff_pair;

typedef struct handoff_send {
    table_transfer t;
    handoff_key key;
    handoff_pair *pair;
    uint64_t generation;
    int32_t first_page, page_count; // what the seat needs, what it holds
    int32_t next, ready;            // next page to post, end of the pages that are complete
    int32_t *pages;                 // [pages_max]
    uint32_t runs;
    handoff_record record;
    bool record_sent;
    status code;
    uint64_t bytes, first_us, last_us, progress_us, delayed_until_us;
    bool delayed;     // the run at `next` had its delay
    uint8_t *corrupt; // a changed copy under way (fault point)
} handoff_send;

typedef struct handoff_seat {
    table_transfer t;
    handoff_key key;
    handoff_pair *pair; // NULL while waiting
    uint64_t incarnation, generation;
    int32_t first_page, page_count;
    int32_t named;  // pages named so far by the commands that open it
    int32_t *pages; // [pages_max]
    uint8_t *in;    // [pages_max] SEAT_PAGE_...
    int32_t stored, needed;
    handoff_record record;
    status code;
    uint64_t bytes, first_us, last_us, progress_us;
} handoff_seat;

// A run that is being received.
typedef struct handoff_run {
    uint32_t seat;
    int32_t first, count;
    uint64_t checksum;
    uint32_t next; // free list
} handoff_run;

// Why a peer was not taken lately: no second try before `until_us`.
typedef struct handoff_note {
    uint64_t incarnation, until_us;
    status code;
} handoff_note;

// One endpoint may connect until `until_us`; incarnation 0: used.
typedef struct handoff_admission {
    uint64_t incarnation, until_us;
    handoff_token token;
} handoff_admission;

struct handoff {
    handoff_settings settings; // strings copied
    handoff_identity identity; // strings copied
    bool listen;
    uint8_t *pool;
    size_t pool_size;
    int32_t pages_max, run_pages;
    char host[64];
    uint16_t port;

    pthread_t thread;
    bool stop; // fabric thread only
    queue *commands, *free_commands, *events;
    handoff_command *command_memory;

    fabric *net;
    handoff_pair pairs[HANDOFF_PEERS_MAX];
    handoff_send *sends; // [HANDOFF_TRANSFERS_MAX], the first `sends_used` were ever used
    handoff_seat *seats;
    uint32_t sends_used, seats_used, early;
    handoff_seat *opening; // whose pages are being named
    int32_t *page_memory;  // page lists of all transfers
    uint8_t *in_memory;
    handoff_run *runs;
    uint32_t run_count, free_run;
    uint8_t *pattern; // [HANDOFF_PROBE_BYTES] what a prefill worker's probe sends
    uint64_t pattern_checksum;
    buffer scratch; // one packed message
    event_box *backlog, **backlog_end;
    handoff_note notes[HANDOFF_NOTES];
    uint32_t note_next;
    handoff_admission *admissions; // [HANDOFF_ADMISSIONS] a ring
    uint32_t admission_next;
    handoff_key *ended; // [HANDOFF_ENDED] the last ones, a ring
    uint32_t ended_next;
    uint64_t tick_us;

    pthread_mutex_t lock; // of what follows, and of `opened`
    pthread_cond_t opened_signal;
    bool opened, changed;
    status open_code;
    error open_error;
    handoff_stats published;
    handoff_stats stats; // fabric thread only
};

#define HANDOFF_NO_RUN UINT32_MAX
enum { SEAT_PAGE_MISSING, SEAT_PAGE_POSTED, SEAT_PAGE_STORED };

bool handoff_key_equal(const handoff_key *a, const handoff_key *b);

// handoff.c
void handoff_emit(handoff *h, const handoff_event *event);
void handoff_note_peer(handoff *h, uint64_t incarnation, status code, uint64_t duration_us);
status handoff_noted(const handoff *h, uint64_t incarnation);

// admit.c
void admit_command(handoff *h, const handoff_command *c);
// Whether this Hello may come in; a token that lets it in is used up.
bool admit_take(handoff *h, const Penstock__Hello *hello);
// Tokens that were not used yet hold longer by how long this thread stood still.
void admit_forgive(handoff *h, uint64_t absent_us);

// wire.c: `transfer` messages; a peer that does not take its messages is failed.
void wire_hello(handoff *h, handoff_pair *p);
void wire_hello_reply(handoff *h, handoff_pair *p, bool accepted, const char *reason);
void wire_confirm(handoff *h, handoff_pair *p);
status wire_probe(handoff *h, handoff_pair *p, bool answer, const uint8_t *data);
void wire_seat_open(handoff *h, const handoff_seat *s);
void wire_seat_closed(handoff *h, const handoff_seat *s);
void wire_received(handoff *h, const handoff_seat *s);
void wire_send_ended(handoff *h, handoff_pair *p, handoff_key key, uint64_t generation,
                     status code);
void wire_record(handoff *h, const handoff_send *s);
slice wire_page_run(handoff *h, const handoff_send *s, int32_t first, int32_t count,
                    uint64_t checksum);
handoff_key wire_key(const Penstock__Transfer *t);
// Whether the peer means this life of ours; else a sentence.
status wire_wanted(const handoff *h, const Penstock__Hello *hello, error *failure);
// What differs between our identity and the peer's, as a sentence; STATUS_OK when nothing does.
status wire_compare(const handoff *h, const Penstock__Hello *hello, error *failure);
void wire_on_message(void *owner, fabric_peer peer, slice header);
bool wire_on_place(void *owner, fabric_peer peer, slice header, size_t size,
                   fabric_placement *placement);

// pair.c
handoff_pair *pair_of(handoff *h, fabric_peer peer);
handoff_pair *pair_for(handoff *h, uint64_t incarnation, bool client);
status pair_connect(handoff *h, const handoff_peer *peer, handoff_pair **made);
void pair_apply(handoff *h, handoff_pair *p, pair_event event, status code);
// Takes the message over where it has to wait for its admission, and sets *m to NULL.
void pair_on_hello(handoff *h, handoff_pair *p, message_fabric **m);
// Whoever waits is looked at again.
void pair_on_admission(handoff *h, uint64_t incarnation);
void pair_on_unreadable(handoff *h, handoff_pair *p, const error *failure);
void pair_on_reply(handoff *h, handoff_pair *p, const Penstock__HelloReply *reply);
void pair_on_confirm(handoff *h, handoff_pair *p, const Penstock__Probe *probe);
bool pair_place_probe(handoff *h, handoff_pair *p, const Penstock__Probe *probe, size_t size,
                      fabric_placement *placement);
void pair_probe_returned(handoff *h, handoff_pair *p, bool received, status code);
void pair_tick(handoff *h, uint64_t absent_us);
// A transfer needs it, or will: it is the last one to be closed for another's sake.
void pair_use(handoff *h, handoff_pair *p);
void pair_on_accepted(void *owner, fabric_peer peer, const char *address);
void pair_on_failed(void *owner, fabric_peer peer, status code);
void pair_on_closed(void *owner, fabric_peer peer);

// send.c
void send_command(handoff *h, const handoff_command *c);
void send_on_seat_open(handoff *h, handoff_pair *p, const Penstock__SeatOpen *m);
void send_on_message(handoff *h, handoff_pair *p, handoff_key key, uint64_t generation,
                     send_event event);
void send_returned(handoff *h, uint64_t token, status code);
void send_raise(handoff *h, handoff_pair *p, send_event event);
void send_pump(handoff *h);
void send_tick(handoff *h, uint64_t absent_us);
uint64_t send_wakeup_us(const handoff *h);
uint64_t handoff_checksum(const handoff *h, const int32_t *pages, int32_t count);

// receive.c
void seat_command(handoff *h, const handoff_command *c);
bool seat_place_run(handoff *h, handoff_pair *p, const Penstock__PageRun *m, size_t size,
                    fabric_placement *placement);
void seat_on_record(handoff *h, handoff_pair *p, const Penstock__HandoverRecord *m);
void seat_on_send_ended(handoff *h, handoff_pair *p, const Penstock__SendEnded *m);
void seat_returned(handoff *h, uint64_t token, status code);
void seat_raise(handoff *h, handoff_pair *p, seat_event event);
void seat_tick(handoff *h, uint64_t absent_us);
