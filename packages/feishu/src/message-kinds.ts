import type { Attachment } from "@larkline/protocol";
import { objectOf, textField, type JsonObject } from "./json-object.ts";

/** What a message of some kind says to a reader, and what it carries. */
export interface ReadContent {
  text: string;
  /** Files of this message, still on the platform. */
  attachments: Attachment[];
  /** It bundles other messages, which have to be fetched. */
  forwarded: boolean;
}

type Reader = (content: JsonObject, messageId: string) => Partial<ReadContent>;

const maxNameLength = 200;
const maxElements = 200;
const maxListLength = 2_000;

function one(kind: Attachment["kind"], content: JsonObject, messageId: string): Attachment[] {
  const key = textField(content, kind === "image" ? "image_key" : "file_key");
  if (key === "" || key.length > 256) return [];
  const name = textField(content, "file_name").slice(0, maxNameLength);
  const durationMs = Number(content["duration"]);
  return [
    {
      kind,
      messageId,
      key,
      ...(name === "" ? {} : { name }),
      ...(Number.isSafeInteger(durationMs) && durationMs > 0 ? { durationMs } : {}),
    },
  ];
}

/** `[what: detail, detail]`, on one line. */
function label(what: string, ...details: string[]): string {
  const known = details.map((detail) => detail.replaceAll(/\s+/g, " ").trim()).filter((detail) => detail !== "");
  return known.length === 0 ? `[${what}]` : `[${what}: ${known.join(", ")}]`;
}

function secondsOf(content: JsonObject): string {
  const durationMs = Number(content["duration"]);
  return durationMs > 0 ? `${Math.round(durationMs / 1_000)} s` : "";
}

/** Empty for what is no time: it must not make the whole message unreadable. */
function dateOf(content: JsonObject, name: string): string {
  const date = new Date(Number(content[name]));
  return date.getTime() > 0 ? date.toISOString().slice(0, 16) : "";
}

function namesOf(value: unknown): string {
  const names = Array.isArray(value) ? value.filter((name) => typeof name === "string") : [];
  return names.join(", ").slice(0, maxListLength);
}

/** Texts of nested arrays of elements, in reading order. */
function elementTexts(value: unknown): string[] {
  if (Array.isArray(value)) return value.slice(0, maxElements).flatMap(elementTexts);
  const element = objectOf(value);
  if (element === undefined) return [];
  const text = textField(element, "text") || textField(element, "content");
  return text === "" ? [] : [text];
}

/** A card as it is received: simplified, lines of elements ("Receive message content"). */
function cardContent(content: JsonObject): Partial<ReadContent> {
  const lines = Array.isArray(content["elements"]) ? content["elements"] : [];
  const texts = lines.slice(0, maxElements).map((line: unknown) => elementTexts(line).join(" "));
  return { text: [label("card", textField(content, "title")), ...texts].filter((line) => line !== "").join("\n") };
}

function systemContent(content: JsonObject): Partial<ReadContent> {
  const template = textField(content, "template").slice(0, maxListLength); // each place may take a whole list
  return {
    text: label(
      "system message",
      template.replaceAll(/\{(\w+)\}/g, (_, name: string) => namesOf(content[name])),
    ),
  };
}

function todoContent(content: JsonObject): Partial<ReadContent> {
  const summary = objectOf(content["summary"]) ?? {};
  const words = elementTexts(summary["content"]).join(" ");
  const due = dateOf(content, "due_time");
  return { text: label("task", textField(summary, "title"), words, due === "" ? "" : `due ${due}`) };
}

function calendarContent(content: JsonObject): Partial<ReadContent> {
  const [start, end] = [dateOf(content, "start_time"), dateOf(content, "end_time")];
  return { text: label("calendar event", textField(content, "summary"), start === "" ? "" : `${start} to ${end} UTC`) };
}

/** By the platform's name of the kind ("Receive message content"). Text and rich text are read elsewhere. */
const readers: Readonly<Record<string, Reader>> = {
  image: (content, id) => ({ text: "[image]", attachments: one("image", content, id) }),
  file: (content, id) => ({
    text: label("file", textField(content, "file_name")),
    attachments: one("file", content, id),
  }),
  folder: (content) => ({ text: label("folder, cannot be opened", textField(content, "file_name")) }),
  audio: (content, id) => ({ text: label("audio", secondsOf(content)), attachments: one("audio", content, id) }),
  media: (content, id) => ({
    text: label("video", textField(content, "file_name"), secondsOf(content)),
    attachments: one("video", content, id),
  }),
  sticker: () => ({ text: "[sticker]" }),
  interactive: cardContent,
  share_chat: () => ({ text: "[shared group chat]" }),
  share_user: () => ({ text: "[shared contact]" }),
  location: (content) => ({
    text: label(
      "location",
      textField(content, "name"),
      textField(content, "latitude"),
      textField(content, "longitude"),
    ),
  }),
  merge_forward: () => ({ text: "[forwarded messages]", forwarded: true }),
  hongbao: (content) => ({ text: textField(content, "text") || "[red packet]" }),
  share_calendar_event: calendarContent,
  calendar: calendarContent,
  general_calendar: calendarContent,
  system: systemContent,
  video_chat: (content) => ({
    text: label("video meeting", textField(content, "topic"), dateOf(content, "start_time")),
  }),
  todo: todoContent,
  vote: (content) => ({ text: label("poll", textField(content, "topic"), namesOf(content["options"])) }),
};

/** What a message that is neither text nor rich text says; undefined for kinds that nobody listed. */
export function readKind(messageType: string, content: JsonObject, messageId: string): ReadContent | undefined {
  const read = Object.hasOwn(readers, messageType) ? readers[messageType] : undefined;
  return read === undefined ? undefined : { text: "", attachments: [], forwarded: false, ...read(content, messageId) };
}

/** Pictures and videos inside a rich text. */
export function postAttachments(post: JsonObject, messageId: string): Attachment[] {
  const lines = post["content"] ?? post["elements"];
  const elements: unknown[] = Array.isArray(lines) ? lines.flat() : [];
  return elements.slice(0, maxElements).flatMap((value) => {
    const element = objectOf(value);
    const tag = element === undefined ? "" : textField(element, "tag");
    if (element === undefined || (tag !== "img" && tag !== "media")) return [];
    return one(tag === "img" ? "image" : "video", element, messageId);
  });
}
