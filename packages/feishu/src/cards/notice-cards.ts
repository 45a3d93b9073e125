import { textIn, type LocalText, type ReplyLanguage } from "@larkline/protocol";
import type { ListPanel } from "@larkline/protocol/reply-view";
import { showAnswer, startOfAnswer, fenced, inlineText, printable } from "./answer.ts";
import {
  button,
  cardInLanguages,
  headWithin,
  listElements,
  localTime,
  markdown,
  plainText,
  type CardElement,
  type Speech,
} from "./card.ts";
import { scopeWords } from "./scope-words.ts";
import { cardTexts } from "./texts.ts";

/** A message that arrived so late that a person has to decide about it. */
export interface LateMessage extends Speech {
  session: string;
  /** Id of the message. */
  message: string;
  /** How long ago it was written. */
  ageMs: number;
  /** Text of the message. */
  text: string;
}

/** What a person decides about a late message. */
export type LateDecision = "run" | "ignore";

function titled(title: string, elements: CardElement[], template = "blue"): CardElement {
  return {
    schema: "2.0",
    config: {
      update_multi: true,
      summary: { content: headWithin(title, { characters: 80, bytes: 300 }) },
    },
    header: {
      title: plainText(headWithin(printable(title), { characters: 200, bytes: 800 })),
      template,
    },
    body: { direction: "vertical", elements },
  };
}

function quoted(text: string): CardElement {
  const head = headWithin(text, { characters: 1_000, bytes: 4_000 });
  return markdown(fenced(head.length < text.length ? `${head}…` : head));
}

/** Asks whether a late message is run or ignored. */
export function lateCard(late: LateMessage): CardElement {
  return cardInLanguages(late, (language) => lateCardIn(language, late));
}

function lateCardIn(language: ReplyLanguage, late: LateMessage): CardElement {
  const { late: texts, age } = cardTexts[language];
  const buttonFor = (action: LateDecision, type: string) =>
    button(texts[action], {
      type,
      elementId: action,
      value: { larkline: "late", action, session: late.session, message: late.message },
    });
  return titled(
    texts.title,
    [
      markdown(texts.body(age(late.ageMs))),
      quoted(late.text),
      buttonFor("run", "primary"),
      buttonFor("ignore", "default"),
    ],
    "orange",
  );
}

/** The same after the decision, without buttons. */
export function lateDecidedCard(late: LateMessage, decision: LateDecision): CardElement {
  return cardInLanguages(late, (language) => {
    const { late: texts } = cardTexts[language];
    const outcome = decision === "run" ? texts.ran : texts.ignored;
    return titled(texts.title, [quoted(late.text), markdown(outcome)], "grey");
  });
}

/** A command as the welcome lists it. */
export interface ShownCommand {
  /** With the slash. */
  name: string;
  description: string;
}

/** What a welcome says. */
export interface Welcome extends Speech {
  botName?: string;
  commands: (language: ReplyLanguage) => readonly ShownCommand[];
}

/** Greets a person, or a group that the bot came to, and lists the commands. */
export function welcomeCard(welcome: Welcome): CardElement {
  return cardInLanguages(welcome, (language) => welcomeCardIn(language, welcome));
}

function welcomeCardIn(
  language: ReplyLanguage,
  { botName, commands: commandsIn }: Welcome,
): CardElement {
  const { welcome: texts } = cardTexts[language];
  const title = botName === undefined ? texts.title : `${texts.title} · ${botName}`;
  const lines = commandsIn(language)
    .slice(0, 50)
    .map(({ name, description }) => {
      const shown = headWithin(description, { characters: 200, bytes: 400 });
      return `- **${inlineText(headWithin(name, { characters: 64, bytes: 128 }))}** ${inlineText(shown)}`;
    });
  const commands = lines.length === 0 ? [] : [markdown([texts.commands, "", ...lines].join("\n"))];
  return titled(title, [markdown(texts.body), ...commands]);
}

/** What a person lets the app do as them. Times are epoch ms. */
export interface ShownGrant {
  /** `lapsed`: it has ended by itself. */
  state: "active" | "lapsed";
  granted: readonly string[];
  grantedAtMs: number;
  /** When it ends if it is not used again, and in any case. */
  endsAtMs: number;
  consentEndsAtMs: number;
  /** The last use first. */
  used: readonly { tool: string; title?: LocalText; atMs: number }[];
}

const maxScopes = 60;
const maxUses = 5;

/** Shows a person what they have granted, with a button that takes it back. */
export function grantCard(grant: ShownGrant, language: ReplyLanguage): CardElement {
  const { title, end, how } = cardTexts[language].grant;
  const text = markdown(grantLines(grant, language, localTime).join("\n"));
  const value = { larkline: "grant", language };
  const elements = [
    text,
    button(end, { elementId: "end_grant", value }),
    markdown(how, { text_size: "notation" }),
  ];
  return titled(title, elements, grant.state === "active" ? "blue" : "grey");
}

/** The same after its person has taken it back. */
export function endedGrantCard(language: ReplyLanguage): CardElement {
  const { title, ended } = cardTexts[language].grant;
  return titled(title, [markdown(ended)], "grey");
}

/** The same as markdown without a card, with times in UTC. */
export function grantText(grant: ShownGrant, language: ReplyLanguage): string {
  const { title, how } = cardTexts[language].grant;
  return [title, ...grantLines(grant, language, timeInUtc), how].join("\n");
}

function timeInUtc(atMs: number): string {
  return `${new Date(atMs).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

function grantLines(
  grant: ShownGrant,
  language: ReplyLanguage,
  time: (atMs: number) => string,
): string[] {
  const { grant: texts, approval } = cardTexts[language];
  const { state, granted, grantedAtMs, endsAtMs, consentEndsAtMs, used } = grant;
  const at = (label: string, atMs: number): string => `${label}${approval.colon}${time(atMs)}`;
  const uses = used.slice(0, maxUses).map(({ tool, title, atMs }) => {
    const name = title === undefined ? tool : textIn(title, language);
    return `- ${inlineText(headWithin(name, { characters: 80, bytes: 240 }))}, ${time(atMs)}`;
  });
  const ends =
    state === "active"
      ? [
          ...(endsAtMs < consentEndsAtMs ? [at(texts.unused, endsAtMs)] : []),
          at(texts.until, consentEndsAtMs),
        ]
      : [texts.lapsed];
  return [
    texts.list,
    ...granted.slice(0, maxScopes).map((scope) => `- ${scopeWords(scope, language)}`),
    "",
    at(texts.since, grantedAtMs),
    ...ends,
    "",
    ...(uses.length === 0 ? [texts.never] : [`${texts.used}${approval.colon.trim()}`, ...uses]),
  ];
}

/** A titled text, such as the answer to a command. The text is markdown and escaped like an answer. */
export function noticeCard(notice: {
  title: string;
  text: string;
  tone?: "info" | "warning" | "error";
}): CardElement {
  const templates = { info: "blue", warning: "orange", error: "red" };
  const text = headWithin(notice.text, { characters: 8_000, bytes: 12_000 });
  const shown = showAnswer(text, startOfAnswer, {
    end: "line",
    streaming: false,
    images: undefined,
  });
  return titled(
    notice.title,
    [markdown(shown.text === "" ? "…" : shown.text)],
    templates[notice.tone ?? "info"],
  );
}

/** Things, each with what may be done about it; below them what else there is to say. */
export function listCard(
  speech: Speech,
  listIn: (language: ReplyLanguage) => { title: string; items: ListPanel["items"]; hint: string },
): CardElement {
  return cardInLanguages(speech, (language) => {
    const { title, items, hint } = listIn(language);
    return titled(title, [...listElements(items, language), markdown(hint)]);
  });
}

/** Replaces a card that the answer does not need any more, because a model step started again. */
export function replacedCard(language: ReplyLanguage): CardElement {
  return noticeCard(cardTexts[language].replaced);
}

/** Replaces a card whose answer is sent as text. */
export function textFollowsCard(language: ReplyLanguage): CardElement {
  return noticeCard(cardTexts[language].textFollows);
}
