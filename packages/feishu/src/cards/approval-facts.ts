import { decidersText } from "@larkline/agent/permissions";
import type { Approval, ApprovalDecision, ReplyLanguage, Sender } from "@larkline/protocol";
import { approvalTexts } from "./approval-texts.ts";
import { headWithin, markdown, plainText, type CardElement, type TextRoom } from "./element.ts";
import { visibleText } from "./escape.ts";

/** Bounds that keep a card below its size whatever people are called and write. */
const nameRoom: TextRoom = { characters: 64, bytes: 160 };
const reasonRoom: TextRoom = { characters: 600, bytes: 1_600 };
const noteRoom: TextRoom = { characters: 500, bytes: 1_100 };
const maxPeople = 10;
const maxNotes = 2;

/** Foreign words with all of them visible, cut where they are too long. */
export function shownWords(text: string, room: TextRoom): string {
  const given = text.trim();
  // Making it visible only makes it longer.
  const visible = visibleText(given.slice(0, room.characters + 1));
  const head = headWithin(visible, room);
  return head.length < visible.length || given.length > room.characters + 1 ? `${head}…` : head;
}

export function shownName(name: string): string {
  return shownWords(name.slice(0, 4 * nameRoom.characters).replaceAll(/\s+/g, " "), nameRoom);
}

/** Text in which nothing is markup. */
function line(content: string, color = "default"): CardElement {
  return { tag: "div", text: { ...plainText(content), text_color: color } };
}

function isOpenId(id: string): boolean {
  return /^ou_\w{1,64}$/.test(id);
}

/** The platform draws names and pictures, and leaves out whom it does not know ("Person list"). */
function personList(openIds: readonly string[]): CardElement[] {
  if (openIds.length === 0) return [];
  const persons = openIds.slice(0, maxPeople).map((id) => ({ id }));
  return [
    { tag: "person_list", persons, size: "small", show_name: true, show_avatar: true, drop_invalid_user_id: true },
  ];
}

/** People by name, and those whose name is not known as the platform calls them. */
function people(label: string, who: readonly Sender[], language: ReplyLanguage): CardElement[] {
  const { colon, comma } = approvalTexts[language];
  const shown = [...new Map(who.map((person) => [person.id, person])).values()].slice(0, maxPeople);
  const unnamed = shown.filter(({ id, name = "" }) => name === "" && isOpenId(id)).map(({ id }) => id);
  const named = shown.filter(({ id }) => !unnamed.includes(id)).map(({ id, name }) => shownName(name || id));
  return [line(`${label}${colon}${named.join(comma)}`.trim()), ...personList(unnamed)];
}

function deciders({ deciders: who, requester }: Approval, language: ReplyLanguage): CardElement[] {
  const { colon, deciders: label } = approvalTexts[language];
  const listed = who.people.filter(isOpenId);
  const others = { ...who, people: who.people.filter((id) => !isOpenId(id)).map(shownName) };
  const hasOthers = (who.requester && !who.fourEyes) || others.people.length > 0 || who.roles.length > 0;
  const name = requester.name === undefined ? {} : { requester: shownName(requester.name) };
  const text = hasOthers || listed.length === 0 ? decidersText(others, { language, ...name }) : "";
  return [line(`${label}${colon}${shownWords(text, { characters: 300, bytes: 900 })}`.trim()), ...personList(listed)];
}

/** A moment, as each reader's own clock shows it ("Rich text (Markdown)"). */
function moment(label: string, atMs: number, colon: string): CardElement {
  const at = (format: string) => `<local_datetime millisecond='${atMs}' format_type='${format}'></local_datetime>`;
  return markdown(`${label}${colon}${at("date_num")} ${at("time")}`, { text_size: "notation" });
}

/** What people should know before they decide. */
export function openFacts(approval: Approval, language: ReplyLanguage): CardElement[] {
  const texts = approvalTexts[language];
  const reason = shownWords(approval.reasons?.[language] ?? approval.reason, reasonRoom);
  return [
    ...(reason === "" ? [] : [line(`${texts.reason}${texts.colon}${reason}`)]),
    ...(approval.kind === "call"
      ? [line(texts.risk[approval.risk], approval.risk === "high" ? "red" : "default")]
      : []),
    ...people(texts.requester, [approval.requester], language),
    ...deciders(approval, language),
    moment(texts.expires, approval.expiresAtMs, texts.colon),
  ];
}

function peopleByWord(decisions: readonly ApprovalDecision[], language: ReplyLanguage): CardElement[] {
  const words = [...new Set(decisions.map(({ decision }) => decision))];
  return words.flatMap((word) => {
    const who = decisions.filter(({ decision }) => decision === word).map(({ by }) => by);
    return people(approvalTexts[language].decidedBy[word], who, language);
  });
}

/** Whose calls the rule is about, where it is about one person's. */
export function ruleScope({ remember, requester }: Approval, language: ReplyLanguage): CardElement[] {
  const { onlyOf } = approvalTexts[language];
  return remember?.person === undefined ? [] : people(onlyOf, [requester], language);
}

/** How many people it takes, where it takes several, and who has decided so far. */
export function progress(
  { kind, deciders: { count } }: Approval,
  decisions: readonly ApprovalDecision[],
  language: ReplyLanguage,
): CardElement[] {
  if (count === 1 && decisions.length === 0) return [];
  const texts = approvalTexts[language];
  const have = decisions.filter(({ decision }) => decision === "approve").length;
  const needed = kind === "outcome" ? texts.agree(count) : texts.progress(have, count);
  return [line(needed), ...peopleByWord(decisions, language)];
}

/** Who decided, when and why. */
export function decidedFacts(decisions: readonly ApprovalDecision[], language: ReplyLanguage): CardElement[] {
  const texts = approvalTexts[language];
  const last = decisions.at(-1);
  const notes = decisions.flatMap(({ note = "" }) => (note.trim() === "" ? [] : [shownWords(note, noteRoom)]));
  return [
    ...peopleByWord(decisions, language),
    ...notes.slice(-maxNotes).map((note) => line(`${texts.reason}${texts.colon}${note}`)),
    ...(last === undefined ? [] : [moment(texts.decidedAt, last.atMs, texts.colon)]),
  ];
}
