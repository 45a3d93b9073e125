import type { CardTexts } from "./card-texts.ts";

export const en: CardTexts = {
  thinking: "Thinking…",
  thought: "Thoughts",
  thoughtFor: "Thought for {} s",
  more: (count) => `${count} more`,
  failed: (count) => `${count} failed`,
  rejected: "rejected",
  earlier: (count) => `… ${count} earlier ${count === 1 ? "call" : "calls"}`,
  seconds: "{} s",
  waiting: "waiting for a person",
  waitsForPermission: "waiting for the permission of {}",
  waitsForApproval: "waiting for a person: approval of {}",
  waitsForAnswer: "waiting for a person: a question",
  away: "its runner is away; waiting for it",
  queued: "queued {} s",
  tokens: "{} in · {} out tokens",
  trace: "trace",
  again: { retry: "Try again", continue: "Continue" },
  whyHint: "What was good, or what should be better?",
  details: "Details",
  stop: "Stop",
  speaking: "speaking",
  choosingSpeaker: "choosing who speaks next",
  earlierSaid: (count) => `${count} before`,
  noAnswer: "(no answer)",
  rest: {
    later: "📄 The answer is long: the rest will come as a file.",
    now: (file) => `📄 The answer is long: the rest is in the file ${file} below.`,
  },
  restFile: "answer-continued.md",
  states: {
    running: "Answering…",
    answered: "Answered",
    stopped: "⏹️ Stopped",
    failed: "⚠️ Failed",
    interrupted: "⚠️ Interrupted before it was finished",
  },
  late: {
    title: "This message came late",
    body: (age) =>
      `The message below was sent ${age} ago and arrived only now. Run it or ignore it?`,
    run: "Run",
    ignore: "Ignore",
    ran: "It is being run.",
    ignored: "It is ignored.",
  },
  age: (ms) => {
    const minutes = Math.max(1, Math.round(ms / 60_000));
    if (minutes < 60) return `${minutes} min`;
    if (minutes < 48 * 60) return `${Math.round(minutes / 60)} h`;
    return `${Math.round(minutes / 1440)} days`;
  },
  welcome: {
    title: "Hello",
    body: "Write to me to begin; in groups, mention me.",
    commands: "Commands:",
  },
  grant: {
    title: "What I may do as you",
    list: "You have let me do in your name, only when you ask for it:",
    since: "Granted",
    unused: "Ends if I do not use it until",
    until: "Ends at the latest",
    lapsed: "It has lapsed. I ask you again when a task needs it.",
    used: "Last used",
    never: "Not used yet.",
    end: "Take it back",
    how: "You can also write /permissions withdraw.",
    ended: "Taken back: I cannot act as you any more. I ask you again when a task needs it.",
  },
  replaced: {
    title: "Written anew",
    text: "This part of the answer was written anew: see the card above.",
  },
  textFollows: {
    title: "Answered as text",
    text: "This card cannot be shown any further: the whole answer is in the message below.",
  },
  approval: {
    kinds: {
      call: {
        title: (tool) => `Approve ${tool}?`,
        question: (tool) => `The agent wants to run **${tool}** with:`,
        endings: {
          approved: {
            title: (tool) => `${tool} approved`,
            text: (tool) => `Action **${tool}** was approved.`,
          },
          rejected: {
            title: (tool) => `${tool} rejected`,
            text: (tool) => `Action **${tool}** was rejected.`,
          },
          expired: {
            title: (tool) => `${tool} expired`,
            text: (tool) => `Nobody decided about **${tool}** in time, so it did not run.`,
          },
          cancelled: {
            title: (tool) => `${tool} cancelled`,
            text: (tool) =>
              `The task ended before anybody decided about **${tool}**, so it did not run.`,
          },
          undeliverable: {
            title: (tool) => `${tool} not decided`,
            text: (tool) => `Nobody could be asked about **${tool}**, so it did not run.`,
          },
        },
      },
      outcome: {
        title: (tool) => `Did ${tool} take effect?`,
        question: (tool) =>
          `**${tool}** was started, and nobody can say whether it took effect. Check that first. It was called with:`,
        endings: {
          retried: {
            title: (tool) => `${tool} run again`,
            text: (tool) => `Action **${tool}** is run again.`,
          },
          done: {
            title: (tool) => `${tool} done`,
            text: (tool) => `Action **${tool}** was marked as done.`,
          },
          aborted: {
            title: (tool) => `${tool} given up`,
            text: (tool) => `Action **${tool}** was given up.`,
          },
          expired: {
            title: (tool) => `${tool}: outcome unknown`,
            text: (tool) => `Nobody said in time what became of **${tool}**: that stays unknown.`,
          },
          cancelled: {
            title: (tool) => `${tool}: outcome unknown`,
            text: (tool) =>
              `The task ended before anybody said what became of **${tool}**: that stays unknown.`,
          },
          undeliverable: {
            title: (tool) => `${tool}: outcome unknown`,
            text: (tool) => `Nobody could be asked what became of **${tool}**: that stays unknown.`,
          },
        },
      },
      rule: {
        title: (tool) => `Always allow ${tool}?`,
        question: (tool) =>
          `Calls of **${tool}** were approved here several times. Run these without asking in this chat from now on?`,
        endings: {
          approved: {
            title: (tool) => `${tool} always allowed`,
            text: (tool) =>
              `These calls of **${tool}** run without asking from now on. /permissions revokes that.`,
          },
          cancelled: {
            title: (tool) => `${tool} still asked about`,
            text: (tool) => `Calls of **${tool}** are asked about as before.`,
          },
        },
      },
    },
    consent: {
      title: "May the bot do this as you?",
      asks: (tool) => `For ${tool} the bot needs your permission to do in your name:`,
      task: "You asked for",
      life: (minutes) => `The link is good for ${minutes} minutes, until`,
      afterwards:
        "Then the work continues by itself. Only you can grant this. See it and take it back with /permissions.",
      open: "Grant permission",
      notNow: "Not now",
      again: "Ask me again",
      states: {
        ran_out: "The link has run out. The work waits for you.",
        other_person: "Another account has agreed. Only you can grant this, so nothing was kept.",
        trouble: "The platform could not ask you just now. Try again, or ask an administrator.",
        moved: "A later card asks for this.",
      },
      endings: {
        approved: "Permission granted, the work continues",
        rejected: "Not granted: the bot does not do this as you",
        expired: "Not granted in time",
        cancelled: "This permission is not needed any more",
        undeliverable: "You could not be asked",
      },
    },
    question: {
      title: "A question for you",
      endings: {
        answered: "Answered",
        expired: "Nobody answered in time",
        cancelled: "No answer is needed any more",
        undeliverable: "Nobody could be asked",
      },
      asker: "Asked by",
      deciders: "May answer",
      hint: "Your answer",
      otherHint: "Or something else",
      send: "Send",
      server: (name) =>
        `The MCP server “${name}” asks this, not the bot. Never enter passwords here.`,
      decline: "Decline",
      declined: "Declined",
      yes: "Yes",
      no: "No",
      answer: "Answer",
    },
    approve: "Approve",
    reject: "Reject",
    rejectWithReason: "Reject with this reason",
    rejectWhy: "Reject and say why…",
    reasonHint: "Why not, or what to do instead",
    always: "Always allow…",
    alwaysTitle: "Always allow this?",
    alwaysText: (rule, who) =>
      `This call is approved, and from now on nobody is asked in this chat about calls ${who === undefined ? "" : `of ${who} `}that fit ${rule}. /permissions lists and revokes such rules.`,
    somebody: "the requester",
    retry: "Run it again",
    retryTitle: "Run it again?",
    retryText: "If it took effect the first time, it happens twice.",
    abort: "Give it up",
    markDone: "It took effect: mark as done",
    noteHint: "What came of it, for the agent to know",
    reason: "Reason",
    risk: { low: "Risk: low", medium: "Risk: medium", high: "⚠️ Risk: high" },
    requester: "Requested by",
    named: "People in it",
    deciders: "May decide",
    onlyOf: "Only for calls of",
    progress: (have, need) => `${have} of ${need} approved`,
    agree: (need) => `${need} people have to decide the same`,
    decidedBy: {
      approve: "Approved by",
      reject: "Rejected by",
      retry: "Run again by",
      done: "Marked as done by",
      abort: "Given up by",
      answer: "Answered by",
    },
    expires: "Open until",
    decidedAt: "Decided",
    allArguments: (characters) => `Arguments · ${characters.toLocaleString("en-US")} characters`,
    notShown: (characters) =>
      `⚠️ ${characters.toLocaleString("en-US")} more characters of the arguments are not shown.`,
    colon: ": ",
    comma: ", ",
  },
};
