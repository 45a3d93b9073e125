/*
 * All texts that people read around answers, in English. Its type is the shape of every language: see zh.ts.
 * Notices fill in values at `{name}`; everything else is a string or a function of the values that it shows.
 */

export type Texts = typeof en;

export const en = {
  notices: {
    empty: "The model gave no answer. Please try again in other words.",
    exhausted: "Reached the maximum number of steps without completing the request.",
    refusal: "The model refused to answer this request.",
    truncated: "The answer reached its length limit and was cut off.",
    sources: "Sources: ",
    oddEnd: "The model ended its answer in an unusual way: it may be incomplete.",
    callCutOff:
      "The answer reached its length limit before its tool call was complete, so nothing was run.",
    callsDropped: "The answer did not end properly, so the tool calls in it were not run.",
    outputInvalid: "The answer did not come in the form that it should have.",
    stopped: "Stopped.",
    recalled: "The message was recalled, so I stopped working on it.",
    superseded: "A newer message arrived, so I stopped here and go on with that one.",
    cancelled: "Cancelled.",
    modelBusy: "The model is busy",
    modelAway: "The model does not answer",
    modelAgain: "{what}: try {tries}, again in about {seconds} s",
    modelAsked: "{what}: try {tries}",
    modelNext: "{what}: {model} is asked instead",
    failed: "Sorry, the model service failed and this message was not answered.",
    failedForAccess:
      "Sorry, the model service refuses this bot: its key, or the credit of its account. Trying again does not help; please tell the people who run this bot.",
    failedForRequest:
      "Sorry, the model service does not take this request: its model or settings may be wrong. Trying again does not help; please tell the people who run this bot.",
    failedForNow: "Sorry, the model service is not available right now. Please try again later.",
    refused:
      "Sorry, the model's vendor refuses this message, or what came with it. The conversation continues without it: please say it differently. If that does not help either, /new begins a new conversation.",
    leftOut: "The model's vendor refused the request, so the answer was made without: {pieces}.",
    tooLong: "The conversation is too long for the model. Please start a new one.",
    abandoned:
      "Sorry, handling this message failed several times and was given up. Actions already taken are not undone.",
    settingsLost:
      "The settings of this conversation could not be read and are back to the defaults.",
    summaryLost:
      "The summary of the earlier conversation could not be read; what it held no longer affects the answers.",
    filesUnread: "Could not be read: {files}",
    waitsForYou:
      "I still wait for your answer to “{what}”: please use its card. This message comes after it.",
    queued: "Received. Messages before this one: {ahead}. I will answer in turn.",
    busy: "I am still working on an earlier message, so this one was not taken. Please wait for my answer, or send /stop first.",
    nothingToStop: "Nothing is running right now.",
    stopping: "Stopping.",
    notAllowedToStop: "Only {who} can stop this one.",
    late: "This message reached me {minutes} minutes after it was written and was not acted on. Shall I still do it?",
    ruleRevoked: "The rule {rule} is revoked: people are asked again.",
    ruleUnknown: "There is no rule “{rule}” here. See them with /permissions.",
    appLacks:
      "I could not do this: my app lacks a permission of Feishu that only an administrator can add. The people who run me have got the link.",
    appLacksAlone:
      "I could not do this: my app lacks a permission of Feishu that only an administrator can add. Please tell the people who run me.",
    appLacksForOperators:
      "People asked me for something that my app lacks permissions for. An administrator can add them here, then publish a version:",
    grantAlone:
      "What you let me do as you is for you alone: I have written to you in our own chat.",
    grantNone: "You let me do nothing as you.",
    grantWithdrawn:
      "Taken back: I cannot act as you any more. I ask you again when a task needs it.",
    grantEnding:
      "Taken: it ends as soon as a worker has time for it, and at the platform with it. /permissions shows whether it has.",
    grantEnds:
      "On {date} it is a year since you let me act as you, and Feishu ends that then. Your schedules that need it: up to {count}. The next one that runs after that day asks you again. See what you have granted with /permissions.",
    scheduleFailed:
      "Your schedule “{title}” has failed five times in a row. It is paused; see /schedules.",
    scheduleUnanswered:
      "Your schedule “{title}” has asked at three times and got no answer. It is paused; see /schedules.",
    scheduleUnreachable:
      "Your schedule “{title}” cannot reach its chat. It is paused; see /schedules.",
    scheduleNeedsConsent:
      "These schedules wait for something of which Feishu tells me only with your permission, and that is missing: {titles}. Ask me to renew them, and I ask you for it.",
    consentTaken:
      "Thank you. What follows is in your chat with the bot in Feishu; you can close this page.",
    consentRefused: "Nothing was granted. You can close this page.",
    consentStale: "This link is not valid any more. The card of the bot has a new one.",
    schedulesLeft:
      "A person has left the organisation. Their schedules of this chat are paused: {titles}.",
    schedulesRevoked:
      "The app may not act as you any more, so your schedules are paused: {titles}. See /schedules.",
    schedulesBotGone:
      "I am not in the chat of these schedules any more, so they are paused: {titles}. See /schedules.",
    schedulesZone:
      "Your time zone is {zone} now. These schedules stay as they were, in {before}: {titles}. Tell me if they should move.",
    readInGroup: "All members of this chat will see what is read as you.",
    answersAlone: "You asked in a group for what only you may see. I answer you here: “{asked}”",
    answeredAlone: "What only the person who asked may see is answered in their own chat with me.",
    memoryAsked:
      "Shall this be remembered? Text that you did not write was read in this conversation, and may be what wants it.",
    memoryForgotten: "Forgotten.",
    memoryUnknown: "There is nothing of this number. See what is remembered with /memory.",
    memoryOff:
      "From now on nothing is remembered of you. Forgotten: {count}. Begin again with /memory on.",
    memoryOn: "From now on I may remember what you ask me to.",
    notAllowedToRevoke: "Only {who} can revoke this rule.",
    modelUnknown: "There is no model “{model}” to choose here.",
    modelChosen: "This conversation now uses the model {model}.",
    modelReset: "This conversation is back to the default model {model}.",
    commandUnknown: "There is no command /{name}. /help lists them.",
    commandNear: "There is no command /{name}. Did you mean {near}?",
    agentUnknown: "There is no agent “{agent}” to choose here.",
    agentChosen: "The agent {agent} answers from now on.",
    agentGone: "The agent {agent} is not configured any more, so {now} answers.",
    agentElsewhere: "The agent {agent} does not answer you here, so {now} does.",
    agentRefused: "Sorry, the agent {agent} does not answer you here.",
    agentPaused: "An operator has paused the agent {agent}. Please try again later.",
    teamLimit: "The team has reached its limit, so the discussion ends here.",
    compacted:
      "The conversation was compacted from about {before} to about {after} tokens. What came before is kept as a summary.",
    shortened:
      "No summary could be made, so the older part was left out: from about {before} to about {after} tokens.",
    nothingToCompact: "There is nothing older to compact.",
    newConversation:
      "A new conversation has begun. What was said before no longer affects the answers.",
  },
  /** Between a label and what it names. */
  colon: ": ",
  /** Between the items of a list in one line. */
  comma: ", ",
  semicolon: "; ",
  labelled: (label: string, value: string) => `- ${label}: ${value}`,
  /** What a result is, in 20 characters at most. */
  pieces: {
    image: "pictures",
    file: "attachments",
    thinking: "earlier thoughts of the model",
    result: "results of tools",
    message: "earlier messages",
    plain: "optional settings and details of tools",
  },
  summaries: {
    text: (count: number) => `text, ${shortCount(count)} chars`,
    json: (count: number) => `JSON, ${shortCount(count)} entries`,
    error: (count: number) => `error, ${shortCount(count)} chars`,
  },
  /** Values of an answer that has fields. */
  answers: { yes: "yes", no: "no", nothing: "–" },

  /** What is typed, and what `/help` says about it. */
  commands: {
    help: { typed: "help", description: "show what you can type" },
    new: { typed: "new", description: "begin a new conversation and leave the old one behind" },
    stop: { typed: "stop", description: "stop what is running" },
    status: { typed: "status", description: "show what this conversation is doing" },
    model: { typed: "model", description: "show or choose the model, for example /model name" },
    agent: { typed: "agent", description: "show who answers, or choose, for example /agent name" },
    compact: {
      typed: "compact",
      description: "replace the older part of the conversation by a summary",
    },
    whoami: { typed: "whoami", description: "show who you are to this bot" },
    usage: { typed: "usage", description: "show your budgets and what is left of them" },
    memory: {
      typed: "memory",
      description:
        "show what is remembered, or forget it, for example /memory forget 1, /memory off",
    },
    schedules: {
      typed: "schedules",
      description:
        "show what runs later, or change it, for example /schedules pause 1, /schedules delete 1",
    },
    permissions: {
      typed: "permissions",
      description:
        "show what runs without asking and what you let me do as you, or take it back: /permissions revoke 1, /permissions withdraw",
    },
  },
  helpTitle: "Just ask, or use one of these commands:",
  helpLine: (_typed: string, name: string, description: string) => `- \`/${name}\`: ${description}`,

  status: {
    state: "State",
    idle: "idle",
    answering: (seconds: number, step: number, tools: readonly string[]) =>
      `answering for ${seconds} s, step ${step}${tools.length > 0 ? `, waiting for ${tools.join(", ")}` : ""}`,
    waitingForDecision: "Waiting for a decision",
    askedCall: ({
      tool,
      requester,
      deciders,
      since,
    }: {
      tool: string;
      requester: string;
      deciders: string;
      since: string;
    }) => `${tool} (asked for by ${requester}, ${deciders} may decide, for ${since})`,
    minutes: (count: number) => `${count} min`,
    hours: (count: number) => `${count} h`,
    waitingMessages: "Waiting messages",
    messages: "Messages in this conversation",
    model: "Model",
    name: "Name",
    userId: "User id",
    app: "App",
    conversation: "Conversation",
    agent: "Agent",
  },

  models: {
    current: (model: string) => `Current model: ${model}`,
    isDefault: " (default)",
    how: "Choose with `/model name`, go back with `/model default`:",
  },

  agents: {
    current: (agent: string) => `Who answers: ${agent}`,
    how: "Choose with `/agent name`, go back with `/agent default`:",
  },

  permissions: {
    none: "Nothing is allowed for good here.",
    title: "What runs here without asking:",
    hint: "Take one back with `/permissions revoke` and its number.",
    forEverybody: "for everybody here",
    forOne: (name: string) => `for ${name} only`,
    rule: ({ whom, author, until }: { whom: string; author: string; until: string }) =>
      `${whom}, allowed by ${author}, until ${until}`,
  },

  schedules: {
    none: "You have no schedules. Say what I should do, and when.",
    title: "Your schedules:",
    hint: "Change one with `/schedules pause`, `resume` or `delete` and its number.",
    paused: "paused",
    unasked: (tools: string) => `does without asking: ${tools}`,
    waits: {
      subscribed: "waits",
      needs_consent: "waits for your permission: ask me to renew it",
      failed: "cannot wait yet: Feishu does not let me know; I try again",
      asked: "begins to wait",
    },
    done: {
      pause: "It is paused. Begin again with /schedules resume and its number.",
      resume: "It runs again.",
      run: "It runs now.",
      delete: "It is deleted.",
      notYours: "Only the person whose schedule it is can do this.",
      busy: "Its runs before are not done yet.",
      changed: "It has changed meanwhile. Look at /schedules again.",
      none: "There is no schedule of this number. See yours with /schedules.",
      past: "Its time has passed. Ask for a new one.",
    },
  },

  memory: {
    none: "Nothing is remembered here.",
    off: "Nothing is remembered of you, and nothing is looked up. Begin again with `/memory on`.",
    title: "What I remember:",
    line: (number: number, text: string, about: "me" | "chat") =>
      `${number}. ${text}${about === "chat" ? " (this chat)" : ""}`,
    hint: "Forget one with `/memory forget` and its number, everything about you with `/memory off`.",
    alone: "What I remember of you I tell you only where we talk alone.",
  },

  deciders: {
    requester: "the requester",
    role: (name: string) => `members of “${name}”`,
    operators: "operators of the console",
    nobody: "nobody",
  },

  cancelled: {
    done: "Already finished: ",
    failed: "Ended in an error: ",
    maybe: "Broken off, may have taken effect, please check: ",
    harmless: "Broken off, without effect: ",
    helpers: "Helpers stopped, nothing of them runs any more: ",
    notRun: "Not run: ",
    earlier: (count: number) => `${count} earlier call${count === 1 ? "" : "s"}`,
  },

  budgets: {
    owners: {
      person: "Your budget",
      chat: "The budget of this chat",
      agent: "The budget of this agent",
      tenant: "The budget of your company",
      deployment: "The budget of this whole service",
    },
    periods: { day: "for today", month: "for this month" },
    tokens: (count: string) => `${count} tokens`,
    ofLimit: (spent: string, limit: string) => `${spent} of ${limit}`,
    /** Between two figures. */
    between: ", ",
    inBrackets: (text: string) => ` (${text})`,
    administrator: "your administrator",
    spent: ({ owner, span, limit, renewal, timeZone, contact }: SpentBudget) =>
      `${owner} ${span} is used up${limit}. It renews on ${renewal} (${timeZone}). Ask ${contact} if you need more.`,
    near: (owner: string, span: string, percent: string) => `${owner} ${span} is ${percent} used`,
    unlimited: "no limit",
    usage: ({ owner, span, used, renewal }: UsedBudget) =>
      `- ${owner} ${span}: ${used}, renews on ${renewal}`,
    none: "There is no budget here.",
    footer: (timeZone: string, contact: string | undefined) =>
      `Times are those of ${timeZone}.${contact === undefined ? "" : ` Ask ${contact} if you need more.`}`,
  },
};

/** A count in six characters at most. */
export function shortCount(count: number): string {
  if (count < 100_000) return count.toLocaleString("en-US");
  return count < 10_000_000 ? `${Math.floor(count / 1_000)}k` : `${Math.floor(count / 1_000_000)}M`;
}

/** The words of a text about a budget that is spent. */
interface SpentBudget {
  owner: string;
  span: string;
  /** The limit in brackets; empty where figures are not shown. */
  limit: string;
  renewal: string;
  timeZone: string;
  contact: string;
}

/** The words of a line of `/usage`. */
interface UsedBudget {
  owner: string;
  span: string;
  used: string;
  renewal: string;
}
