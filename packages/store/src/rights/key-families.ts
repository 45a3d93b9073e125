/** Where the keys of one deployment are: its namespace, and the runner whose queue is meant. */
export interface Place {
  namespace: string;
  runner?: string;
}

/** The sixteen cells, in two patterns: each names exact numbers, so that no key can pose as another one. */
function cells(namespace: string, rest: string): string[] {
  return [`{${namespace}:[0-9]}:${rest}`, `{${namespace}:1[0-5]}:${rest}`];
}

function ofCell(rest: string) {
  return ({ namespace }: Place): string[] => cells(namespace, rest);
}

function whole(rest: string) {
  return ({ namespace }: Place): string[] => [`{${namespace}}:${rest}`];
}

function untagged(rest: string) {
  return ({ namespace }: Place): string[] => [`${namespace}:${rest}`];
}

/** The queue of one runner, and those of its tools that have limits; with no runner those of all. */
function toolQueues({ namespace, runner }: Place): string[] {
  const queue = `{${namespace}}:tools-`;
  return runner === undefined ? [`${queue}*`] : [`${queue}${runner}:*`, `${queue}${runner}.*`];
}

/** What one runner hands in, and the answers to its questions; with no runner those of all. */
function handoffs(name: "handoff" | "begun") {
  return ({ namespace, runner }: Place): string[] => {
    if (name === "handoff") return cells(namespace, `handoff:${runner ?? "*"}`);
    return cells(namespace, runner === undefined ? "begun:*" : `begun:${runner}:*`);
  };
}

/**
 * All keys, by what they hold, as patterns of Redis. The names are those of packages/store/src/keys.md;
 * a pattern holds one kind of value and nothing else.
 */
export const keyFamilies = {
  sessions: ofCell("s:*"),
  inboxes: ofCell("in:*"),
  states: ofCell("state:*"),
  controls: ofCell("ctl:*"),
  requests: ofCell("req:*"),
  calls: ofCell("calls:*"),
  /** Which helpers work below a session. */
  children: ofCell("children:*"),
  endedChildren: ofCell("ended-children:*"),
  childRoots: ofCell("child-roots"),
  histories: ofCell("h:*"),
  /** Conversations over HTTP, and whose they are. */
  apiHistories: ofCell("h:api.*"),
  apiWriters: ofCell("who:api.*"),
  writers: ofCell("who:*"),
  events: ofCell("ev:*"),
  outboxes: ofCell("ob:*"),
  cards: ofCell("cards:*"),
  folders: ofCell("files:*"),
  approvals: ofCell("approval:*"),
  said: ofCell("said:*"),
  pending: ofCell("pending:*"),
  keptApprovals: ofCell("approvals:*"),
  seen: ofCell("seen:*"),
  /** Messages that ingress sends itself before it is ready. */
  warmUps: ({ namespace }: Place): string[] => [`{${namespace}:warm-up:*}:*`],
  recalled: ofCell("recalled:*"),
  parked: ofCell("parked:*"),
  dirty: ofCell("dirty"),
  deadlines: ofCell("deadlines"),
  due: ofCell("due"),
  openCards: ofCell("open-cards"),
  expiries: ofCell("expiries"),
  approvalCards: ofCell("approval-cards"),
  letters: ofCell("letters"),
  lettersByTime: ofCell("letters-by-time"),
  ended: ofCell("ended"),
  untended: ofCell("untended"),
  people: ofCell("people"),
  floors: ofCell("floor"),
  handoffs: handoffs("handoff"),
  begun: handoffs("begun"),
  handoffRunners: whole("handoff-runners"),
  audits: (place: Place): string[] => [...ofCell("audit")(place), ...whole("audit")(place)],
  approvalSessions: untagged("approval:*"),
  ingressLookups: untagged("look:ingress:*"),
  workerLookups: untagged("look:worker:*"),
  consoleLookups: untagged("look:console:*"),
  reactionLookups: untagged("look:reaction:*"),
  responseLookups: untagged("look:response:*"),
  orders: whole("orders"),
  orderResults: whole("order-result:*"),
  /** Agents and tools that operators have paused. */
  pauses: whole("pauses"),
  /** What operators have changed of agents. */
  agentVersions: whole("agent-versions"),
  blobs: ({ namespace }: Place): string[] => [`{${namespace}:blob:*}`],
  rules: whole("rules:*"),
  rulesRevoked: whole("rules-revoked:*"),
  rulesByExpiry: whole("rules-by-expiry:*"),
  rulesOfChats: whole("rules-of-chat:*"),
  approved: whole("approved:*"),
  /** What is remembered of people and chats. */
  memoryIndexes: ({ namespace }: Place): string[] => [`{${namespace}:memory:*}:all`],
  memories: ({ namespace }: Place): string[] => [`{${namespace}:memory:*}:of:*`],
  forgottenMemories: ({ namespace }: Place): string[] => [`{${namespace}:memory:*}:forgotten`],
  memoryLookUps: ({ namespace }: Place): string[] => [`{${namespace}:memory:*}:look-up`],
  memoryWishes: ({ namespace }: Place): string[] => [`{${namespace}:memory:*}:off`],
  /** Of one runner; with no runner those of all. */
  runners: ({ namespace, runner = "*" }: Place): string[] => [`{${namespace}}:runners:${runner}`],
  everyRunner: whole("runners:*"),
  runnerNames: whole("runner-names"),
  /** Which runner a name of a tool belongs to. */
  toolOwners: whole("tool-owners"),
  /** What is known of processes: of one runner, or of all that beat. */
  alive: ({ namespace, runner }: Place): string[] => [
    runner === undefined ? `{${namespace}}:alive:*` : `{${namespace}}:alive:runner:${runner}:*`,
  ],
  present: ({ namespace, runner }: Place): string[] => [
    `{${namespace}}:present:${runner === undefined ? "workers" : `runner:${runner}`}`,
  ],
  stateVersion: whole("state-version"),
  duties: whole("duty:*"),
  watchDuties: whole("duty:event-watch:*"),
  canaryDuties: whole("duty:canary"),
  instances: whole("instances"),
  eventWatches: whole("event-watch:*"),
  tokens: whole("token:*"),
  buckets: ({ namespace }: Place): string[] => [`{${namespace}:rate:*}:bucket:*`],
  requestPaces: ({ namespace }: Place): string[] => [`{${namespace}:rate:*}:requests:*`],
  platformCalls: ({ namespace }: Place): string[] => [`{${namespace}:rate:*}:calls:*`],
  traceRecords: ({ namespace }: Place): string[] => [`{${namespace}:trace:*}:record:*`],
  traceLines: ({ namespace }: Place): string[] => [`{${namespace}:trace:*}:records`],
  traceNames: ({ namespace }: Place): string[] => [`{${namespace}:trace:*}:names`],
  runLists: ({ namespace }: Place): string[] => [`{${namespace}:runs:*}:list`],
  usage: ({ namespace }: Place): string[] => [`{${namespace}:usage}:*`],
  ratings: ({ namespace }: Place): string[] => [`{${namespace}:ratings}:of:*`],
  ratingsByTime: ({ namespace }: Place): string[] => [`{${namespace}:ratings}:by-time`],
  ratedReplies: ({ namespace }: Place): string[] => [`{${namespace}:rated:*}:replies`],
  names: whole("names"),
  namesByTime: whole("names-by-time"),
  /** Traces of the version before. */
  oldTraces: ({ namespace }: Place): string[] => [`{${namespace}:trace:*}:of:*`],
  oldTraceIndexes: ({ namespace }: Place): string[] => [`{${namespace}:trace:*}:by-*`],
  spending: ({ namespace }: Place): string[] => [`{${namespace}:budget}:*`],
  turnQueue: whole("turns:*"),
  toolQueues,
} as const satisfies Record<string, (place: Place) => string[]>;

export type KeyFamily = keyof typeof keyFamilies;

export const channelFamilies = {
  eventBatches: ofCell("ch:*"),
  cancels: whole("cancel"),
  /** Of one runner; with no runner those of all. */
  runnerCancels: ({ namespace, runner = "*" }: Place): string[] => [`{${namespace}}:cancel:${runner}`],
  handoffNotifications: ({ namespace }: Place): string[] => [`{${namespace}}:handoff`, `{${namespace}}:handoff:*`],
  handoffAnswers: ({ namespace, runner }: Place): string[] => [`{${namespace}}:begun:${runner ?? "*"}`],
  runnersChanged: whole("runners-changed"),
  /** On which a process can be seen to live. */
  presence: ({ namespace, runner }: Place): string[] => [
    `{${namespace}}:presence:${runner === undefined ? "worker-*" : `runner:${runner}:*`}`,
  ],
  pausesChanged: whole("pauses-changed"),
  agentVersionsChanged: whole("agent-versions-changed"),
} as const satisfies Record<string, (place: Place) => string[]>;

export type ChannelFamily = keyof typeof channelFamilies;
