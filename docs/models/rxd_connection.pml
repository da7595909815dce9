// SPDX-License-Identifier: BSD-2-Clause
//
// A model for Spin: two rxd endpoints make, doubt and end a connection (docs/rxd-protocol.md,
// sections 3 and 9).
//
//   docs/models/rxd_model_test.sh                      # ctest rxd_model
//
// Checked in every run, for all behaviours of network, restarts and timers:
//   * An operation is executed at most once and ends exactly once. It completes only if it was
//     executed.
//   * If one side believes that an operation was executed in this connection, the other side has
//     executed it in this connection: both agree on the pair.
//   * Every run comes to rest. At rest every operation and every close has ended, so no side with
//     an operation stays half-open for ever.
//   * No side asks in vain: once the network is honest and the other side lives, one repetition of
//     an RTS or a connect makes the connection. (Repetitions are up to 200 ms apart, so two in vain
//     would be a stall.)
//
// The network loses, duplicates, delays without limit and reorders MISCHIEF times; then it is
// honest. Timers run only when no message is in flight; an earlier timer has the same effect as a
// duplicated message. The ten seconds of a token are not modelled: here it is good for the life of
// the endpoint, which is the worse case. A connection number in the model stands for number and
// cookie.

#ifndef MISCHIEF
#define MISCHIEF 2
#endif
#ifndef OPS0
#define OPS0 2
#endif
#ifndef OPS1
#define OPS1 1
#endif
#define OPS (OPS0 + OPS1)
// The cookie in a packet comes from both sides. If it were the receiver's alone, late data of an
// older connection could pass for new data: with ONE_COOKIE, Spin shows how.
#ifdef ONE_COOKIE
#define PAIR true
#else
#define PAIR (a == theirs[me])
#endif
// A connect is answered by a challenge if its token is from an earlier life of the endpoint, or
// older than the connection. If it were dropped, a side whose peer restarted after it gave the
// token would repeat the connect in vain: with SILENT, Spin shows how.
#ifdef SILENT
#define REFUSE skip
#else
#define REFUSE out!CHALLENGE, 0, instance[me], age[me], 0, 0, 0
#endif
#define DOUBT 3   // repetitions without an answer before the connection is doubted
#define GONE 6    // and before the peer is given up
#define BYES 3    // repetitions of a close
#define PAIRS 16  // most connections of a run

mtype = { RTS, CHALLENGE, CONNECT, ACCEPT, DATA, ACK, RESET, CLOSE, CLOSED };
mtype:phase = { IDLE, ASKING, CONNECTING, UP, DEAD };

// A message: kind, to, then
//   CHALLENGE: token (instance, age)
//   CONNECT: instance, connection, token, whether it verifies
//   ACCEPT: instance, connection
//   DATA: connection, operation, -, number
//   ACK and CLOSE: connection, -, -, next number
//   CLOSED: connection
// `to` and connection together stand for a packet's cookie, the sum of both sides' cookies.
chan net[2] = [3] of { mtype, byte, byte, byte, byte, byte, bit };
chan late[2] = [1] of { mtype, byte, byte, byte, byte, byte, bit };

byte mischief = MISCHIEF;
bool restarted, partitioned;
byte fresh;  // the last connection number that was used

// ---- of each side ----
mtype:phase phase[2] = IDLE;
byte instance[2], age[2];  // of the endpoint; number of connections that it has made
byte mine[2], theirs[2], their_instance[2];
byte token_instance[2], token_age[2];
bool doubts[2];
bool closing[2];
byte tries[2];
bool asked[2];      // an RTS or a connect was repeated on an honest network, without success
byte next_number[2], expected[2];
byte to_do[2];
byte op[2];        // 0: none
bool sent[2];      // the operation was started on the present connection

// After an event that may cost a repetition.
inline disturb() {
  asked[0] = false;
  asked[1] = false
}

// ---- what is checked ----
byte executed[OPS + 1], ended[OPS + 1];

// The messages of an event leave at its end.
inline network() {
  do
  :: nempty(out) ->
     out?kind, to, a, b, c, d, e;
     if
     :: nfull(net[other]) -> net[other]!kind, to, a, b, c, d, e
     :: full(net[other]) -> disturb()               // a queue overflows: lost
     :: mischief > 0 -> mischief--; disturb()       // lost
     :: mischief > 0 && nfull(late[other]) && nfull(net[other]) ->
        mischief--;
        disturb();                                  // duplicated: the second one comes at any time
        net[other]!kind, to, a, b, c, d, e;
        late[other]!kind, to, a, b, c, d, e
     fi
  :: empty(out) -> break
  od;
  kind = 0; to = 0; a = 0; b = 0; c = 0; d = 0; e = 0
}

inline finish() {
  ended[op[me]]++;
  assert(ended[op[me]] == 1);
  op[me] = 0;
  sent[me] = false
}

inline forget() {
  phase[me] = IDLE;
  asked[me] = false;
  mine[me] = 0;
  theirs[me] = 0;
  their_instance[me] = 0;
  doubts[me] = false;
  tries[me] = 0;
  next_number[me] = 0;
  expected[me] = 0;
  token_instance[me] = 0;
  token_age[me] = 0
}

// The conversation is over. A sent operation fails; an unsent one waits for a new handshake.
inline end_conversation() {
  forget();
  if
  :: sent[me] -> finish()
  :: else
  fi
}

inline send_data() {
  out!DATA, theirs[me], mine[me], op[me], 0, next_number[me], 0
}

// Sends an operation that waits: on the connection, or by a handshake first.
inline go_on() {
  if
  :: op[me] != 0 && !sent[me] && phase[me] == UP ->
     sent[me] = true;
     send_data()
  :: op[me] != 0 && phase[me] == IDLE ->
     fresh++;
     assert(fresh < PAIRS);
     mine[me] = fresh;
     phase[me] = ASKING;
     out!RTS, 0, 0, 0, 0, 0, 0
  :: else
  fi
}

inline connected(their_i, their_c) {
  phase[me] = UP;
  their_instance[me] = their_i;
  theirs[me] = their_c;
  age[me]++;
  doubts[me] = false;
  tries[me] = 0;
  asked[me] = false;
  token_instance[me] = 0;
  token_age[me] = 0
}

inline heard() {
  tries[me] = 0;
  doubts[me] = false
}

// The network may swap the first two messages.
inline receive() {
  if
  :: net[me]?kind, to, a, b, c, d, e
  :: mischief > 0 && len(net[me]) > 1 ->
     mischief--;
     disturb();
     net[me]?kind, to, a, b, c, d, e;
     net[me]!kind, to, a, b, c, d, e;
     net[me]?kind, to, a, b, c, d, e
  fi
}

inline take() {
  if
  :: phase[me] == DEAD  // no process has this address
  :: phase[me] != DEAD && kind == RTS ->
     if
     :: closing[me]
     :: else -> out!CHALLENGE, 0, instance[me], age[me], 0, 0, 0
     fi
  :: phase[me] != DEAD && kind == CHALLENGE ->
     if
     :: phase[me] == ASKING || phase[me] == CONNECTING || (phase[me] == UP && doubts[me] && !closing[me]) ->
        token_instance[me] = a;
        token_age[me] = b;
        if
        :: phase[me] == ASKING -> phase[me] = CONNECTING
        :: else
        fi;
        out!CONNECT, 0, instance[me], mine[me], a, b, doubts[me]
     :: else
     fi
  :: phase[me] != DEAD && kind == CONNECT ->
     if
     :: closing[me]
     :: c != instance[me] && !closing[me] -> REFUSE  // a token of an earlier life
     :: c == instance[me] && !closing[me] ->
        if
        :: phase[me] == UP && their_instance[me] == a && theirs[me] == b ->
           out!ACCEPT, b, instance[me], mine[me], 0, 0, 0
        :: else ->
           if
           :: e && (phase[me] == ASKING || phase[me] == CONNECTING)  // our connect will answer it
           :: e && phase[me] != ASKING && phase[me] != CONNECTING ->
              out!RESET, b, 0, 0, 0, 0, 0  // it verifies a connection that we do not know
           :: !e && phase[me] == UP && d != age[me] -> REFUSE  // older than our connection
           :: !e && !(phase[me] == UP && d != age[me]) ->
              if
              :: phase[me] == UP -> end_conversation()  // it was restarted, or forgot us
              :: else
              fi;
              if
              :: mine[me] == 0 -> fresh++; assert(fresh < PAIRS); mine[me] = fresh
              :: else
              fi;
              connected(a, b);
              out!ACCEPT, b, instance[me], mine[me], 0, 0, 0
           fi
        fi
     fi
  :: phase[me] != DEAD && kind == ACCEPT ->
     if
     :: mine[me] != to || mine[me] == 0 || closing[me]
     :: mine[me] == to && mine[me] != 0 && !closing[me] ->
        if
        :: phase[me] == UP && theirs[me] == b -> heard()
        :: phase[me] == UP && theirs[me] != b -> end_conversation()  // the peer has restarted
        :: else -> connected(a, b)
        fi
     fi
  :: phase[me] != DEAD && kind == DATA ->
     if
     :: phase[me] == UP && to == mine[me] && PAIR && !closing[me] ->
        heard();
        if
        :: d == expected[me] ->
           expected[me]++;
           executed[b]++;
           assert(executed[b] == 1)
        :: d < expected[me]
        fi;
        out!ACK, theirs[me], mine[me], 0, 0, expected[me], 0
     :: else
     fi
  :: phase[me] != DEAD && kind == ACK ->
     if
     :: phase[me] == UP && to == mine[me] && PAIR ->
        heard();
        if
        :: sent[me] && d > next_number[me] ->
           assert(executed[op[me]] == 1);
           next_number[me] = d;
           finish()
        :: else
        fi
     :: else
     fi
  :: phase[me] != DEAD && kind == RESET ->
     if
     :: phase[me] == UP && to == mine[me] && !closing[me] -> end_conversation()
     :: else
     fi
  :: phase[me] != DEAD && kind == CLOSE ->
     if
     :: phase[me] == UP && to == mine[me] && PAIR ->
        if
        :: sent[me] && d > next_number[me] -> assert(executed[op[me]] == 1); finish()
        :: else
        fi;
        out!CLOSED, theirs[me], mine[me], 0, 0, 0, 0;
        end_conversation();
        if
        :: closing[me] -> phase[me] = DEAD
        :: else
        fi
     :: else
     fi
  :: phase[me] != DEAD && kind == CLOSED ->
     if
     :: closing[me] && to == mine[me] && PAIR -> forget(); phase[me] = DEAD
     :: else
     fi
  fi
}

// A timer. It runs only when no message is in flight that could make it unnecessary.
inline repeat() {
  tries[me]++;
  if
  :: closing[me] ->
     if
     :: tries[me] > BYES -> forget(); phase[me] = DEAD
     :: else -> out!CLOSE, theirs[me], mine[me], 0, 0, expected[me], 0
     fi
  :: !closing[me] && tries[me] > GONE ->
     sent[me] = op[me] != 0;  // a waiting operation fails too
     end_conversation()
  :: !closing[me] && tries[me] <= GONE ->
     if
     :: phase[me] == ASKING || phase[me] == CONNECTING ->
        assert(!asked[me] || closing[other] || phase[other] == DEAD);
        asked[me] = true
     :: else
     fi;
     if
     :: phase[me] == ASKING -> out!RTS, 0, 0, 0, 0, 0, 0
     :: phase[me] == CONNECTING ->
        if  // every fourth time a new token
        :: tries[me] % 4 != 0 -> out!CONNECT, 0, instance[me], mine[me], token_instance[me], token_age[me], 0
        :: else -> out!RTS, 0, 0, 0, 0, 0, 0
        fi
     :: phase[me] == UP && (tries[me] < DOUBT || !sent[me]) && !doubts[me] -> send_data()
     :: phase[me] == UP && (tries[me] >= DOUBT || doubts[me]) ->
        doubts[me] = true;
        if
        :: sent[me] -> send_data()
        :: else
        fi;
        out!RTS, 0, 0, 0, 0, 0, 0
     fi
  fi
}

#define QUIET (empty(net[0]) && empty(net[1]))
#define WAITS (phase[me] == ASKING || phase[me] == CONNECTING || (phase[me] == UP && (sent[me] || doubts[me] || closing[me])))

proctype Side(byte me) {
  byte other = 1 - me;
  chan out = [4] of { mtype, byte, byte, byte, byte, byte, bit };
  mtype kind;
  byte to, a, b, c, d;
  bit e;
end:
  do
  :: atomic {
       if
       :: nempty(net[me]) -> receive(); take()
       :: to_do[me] > 0 && op[me] == 0 && !closing[me] && phase[me] != DEAD ->
          op[me] = (me == 0 -> to_do[me] : OPS0 + to_do[me]);
          to_do[me]--
       :: QUIET && WAITS -> repeat()
       :: me == 0 && !closing[me] && to_do[me] == 0 && op[me] == 0 && phase[me] != DEAD ->
          closing[me] = true;
          tries[me] = 0;
          if
          :: phase[me] == UP -> out!CLOSE, theirs[me], mine[me], 0, 0, expected[me], 0
          :: else -> phase[me] = DEAD
          fi
       :: me == 1 && !restarted ->  // the process is killed and restarted at the same address
          restarted = true;
          disturb();
          sent[me] = op[me] != 0;
          end_conversation();
          instance[me]++;
          age[me] = 0
       :: !partitioned && !closing[me] && (phase[me] == UP || phase[me] == ASKING || phase[me] == CONNECTING) ->
          partitioned = true;
          disturb();  // the partition lasts until the peer is given up
          sent[me] = op[me] != 0;
          end_conversation()
       fi;
       go_on();
       network()
     }
  od
}

// Messages that the network kept back arrive at last.
proctype Late(byte me) {
  mtype kind;
  byte to, a, b, c, d;
  bit e;
end:
  do
  :: atomic { nempty(late[me]) && nfull(net[me]) ->
       late[me]?kind, to, a, b, c, d, e;
       disturb();
       net[me]!kind, to, a, b, c, d, e;
       kind = 0; to = 0; a = 0; b = 0; c = 0; d = 0; e = 0 }
  od
}

init {
  byte i;
  atomic {
    instance[0] = 1;
    instance[1] = 1;
    to_do[0] = OPS0;
    to_do[1] = OPS1;
    run Side(0);
    run Side(1);
    run Late(0);
    run Late(1)
  };
  timeout ->  // everything is at rest
  d_step {
    assert(phase[0] == DEAD && closing[0]);
    assert(phase[1] == IDLE || phase[1] == UP);
    i = 1;
    do
    :: i <= OPS -> assert(ended[i] == 1 && executed[i] <= 1); i++
    :: else -> break
    od
  }
}
