import type { Approval, DecisionWord, SettledState } from "@larkline/protocol/approval";
import type { ReplyAgain, ReplyView } from "@larkline/protocol/reply-view";
import type { RiskLevel } from "@larkline/protocol/tool";

/** Every text on cards, except what models, tools and people wrote. */
export interface CardTexts {
  thinking: string;
  thought: string;
  /** The same with the seconds that it took. */
  thoughtFor: string;
  /** Of further calls that run beside the one that is named. */
  more(count: number): string;
  failed(count: number): string;
  /** For a call that a person has rejected. */
  rejected: string;
  earlier(count: number): string;
  /** With the number in place of `{}`, here and below. */
  seconds: string;
  /** For a call that waits for the decision of a person. */
  waiting: string;
  /** For a call that waits until a person lets the bot act as them. */
  waitsForPermission: string;
  /** For a helper that waits: people decide about a call of this tool, or answer a question. */
  waitsForApproval: string;
  waitsForAnswer: string;
  /** For a call whose runner is away. */
  away: string;
  /** How long a call waited for its runner, in seconds. */
  queued: string;
  /** Input, then output tokens. */
  tokens: string;
  trace: string;
  /** On the button below an answer that has failed, or that a limit has ended. */
  again: Record<ReplyAgain["wish"], string>;
  /** In the field for the reason of a rating. */
  whyHint: string;
  /** On the fold of the footer where it has no other words. */
  details: string;
  stop: string;
  /** For a team: who speaks, that the next speaker is chosen, and contributions that are left out. */
  speaking: string;
  choosingSpeaker: string;
  earlierSaid(count: number): string;
  noAnswer: string;
  /** Where to find the rest of an answer that takes too many cards. */
  rest: { later: string; now(file: string): string };
  /** Name of that file. */
  restFile: string;
  states: Record<ReplyView["state"], string>;
  late: {
    title: string;
    body(age: string): string;
    run: string;
    ignore: string;
    ran: string;
    ignored: string;
  };
  age(ms: number): string;
  welcome: { title: string; body: string; commands: string };
  grant: GrantTexts;
  /** In place of a card that the answer does not need any more. */
  replaced: { title: string; text: string };
  /** In place of a card whose answer is sent as text. */
  textFollows: { title: string; text: string };
  approval: ApprovalTexts;
}

/** The title and a line of markdown of a settled card. `tool` is escaped for its place. */
interface Ending {
  title: (tool: string) => string;
  text: (tool: string) => string;
}

/** States that an approval of some kind cannot reach have the texts of `cancelled`. */
type Endings = { cancelled: Ending } & Partial<Record<SettledState, Ending>>;

interface KindTexts {
  title: (tool: string) => string;
  /** Markdown; the arguments or the rule follow in a code block on the next line. */
  question: (tool: string) => string;
  endings: Endings;
}

/** What the card of a question says; states that a question cannot reach have the title of `cancelled`. */
interface QuestionTexts {
  title: string;
  endings: { cancelled: string } & Partial<Record<SettledState, string>>;
  /** Followed by the agents for which a helper asks. */
  asker: string;
  /** Followed by who may answer. */
  deciders: string;
  hint: string;
  /** Where there are choices beside the field. */
  otherHint: string;
  send: string;
  /** Who asks through the bot, where it is a server. */
  server: (name: string) => string;
  decline: string;
  declined: string;
  yes: string;
  no: string;
  /** Followed by the answer. */
  answer: string;
}

/** What the card says that shows a person what they have granted. */
interface GrantTexts {
  title: string;
  /** Before the list of what they allow. */
  list: string;
  since: string;
  /** When it ends if it is not used, and when it ends in any case. */
  unused: string;
  until: string;
  /** It has ended by itself. */
  lapsed: string;
  used: string;
  never: string;
  end: string;
  /** The command that does the same. */
  how: string;
  ended: string;
}

/** What the card says that asks a person to let the app act as them. */
interface ConsentTexts {
  title: string;
  /** Before the list of what is asked for. `tool`: what the agent wants to do, by its title or name. */
  asks: (tool: string) => string;
  /** Followed by the person's own words. */
  task: string;
  /** How long the link is good for, in minutes, followed by the moment. */
  life: (minutes: number) => string;
  /** That it can be taken back. */
  afterwards: string;
  open: string;
  notNow: string;
  again: string;
  /** Why there is no link that works. */
  states: Record<"ran_out" | "other_person" | "trouble" | "moved", string>;
  endings: { cancelled: string } & Partial<Record<SettledState, string>>;
}

/** What the card of an approval says. */
interface ApprovalTexts {
  kinds: Record<Exclude<Approval["kind"], "question" | "consent">, KindTexts>;
  consent: ConsentTexts;
  question: QuestionTexts;
  approve: string;
  reject: string;
  rejectWithReason: string;
  /** On the button that opens the form with the reason. */
  rejectWhy: string;
  reasonHint: string;
  /** `who`: the person whose calls the rule covers; absent: it covers everybody's. */
  /** On the button; `alwaysText` says what it would allow before it does. */
  always: string;
  alwaysTitle: string;
  alwaysText: (rule: string, who?: string) => string;
  /** A person whose name is not known. */
  somebody: string;
  retry: string;
  retryTitle: string;
  retryText: string;
  abort: string;
  markDone: string;
  noteHint: string;
  reason: string;
  risk: Record<RiskLevel, string>;
  requester: string;
  /** Followed by the people whom the arguments name. */
  named: string;
  deciders: string;
  /** Followed by the person whose calls the rule covers. */
  onlyOf: string;
  progress: (have: number, need: number) => string;
  /** Where people may decide one way or another. */
  agree: (need: number) => string;
  decidedBy: Record<DecisionWord, string>;
  /** Followed by a time. */
  expires: string;
  decidedAt: string;
  allArguments: (characters: number) => string;
  notShown: (characters: number) => string;
  /** Between a label and its value. */
  colon: string;
  /** Between names. */
  comma: string;
}
