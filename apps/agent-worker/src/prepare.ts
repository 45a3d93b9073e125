import { overheard, speakerName, underSpeaker, type UserMessage } from "@larkline/agent/messages";
import { addressesIn } from "@larkline/agent/permissions";
import { readContent, type FetchedMessage, type SaidMessage } from "@larkline/feishu";
import { transcribe } from "@larkline/model/openai";
import type { LarklineConfig, Transcription } from "@larkline/process/config";
import type { Attachment, InboundMessage, QueuedMessage } from "@larkline/protocol";
import { deadline, type Clock } from "@larkline/protocol/clock";
import type {
  AttachmentState,
  FilePart,
  Message,
  TextPart,
  UserPart,
} from "@larkline/protocol/content";
import { imageTypeOf } from "@larkline/protocol/stored-image";
import type { BlobStore, SessionStore } from "@larkline/store";
import { sessionOfRun } from "@larkline/store/operations";
import type { LookupCache } from "@larkline/store/platform";
import { createSlots, type TextExtractor } from "./attachments/text-extractor.ts";
import type { Bot } from "./bot.ts";
import { shownKeyOf } from "./run-records.ts";

const nameKeptMs = 24 * 3_600_000;
/** Names are optional: an answer does not wait longer for them. */
const namePatienceMs = 3_000;
/**
 * Of a picture that is kept. Anthropic takes 5 MiB ("Vision"), counted on the base64 text, which is a third longer than the
 * image. Other bounds of vendors are kept with each request.
 */
const pictureBounds = { maxSide: 8_000, maxPixels: 36_000_000, maxBytes: 3_900_000 };
/** Files of one message, and of all messages, that are fetched and read at a time: each is held in memory. */
const filesAtOnce = 3;
const filesInProcess = 8;
const maxForwarded = 50;
const maxQuotedCharacters = 8_000;
const maxAttachments = 20;
const lineBreak = /\r\n|[\n\v\f\r\u0085\u2028\u2029]/g;
const maxQuotedFiles = 5;
/** Earlier messages of a group are optional, too. */
const saidPatienceMs = 5_000;
const saidWithinMs = 24 * 3_600_000;
const maxSaidBytes = 8_192;
const maxSaidCharacters = 2_000;

interface Fetching {
  bot: Bot;
  signal: AbortSignal;
  /** The person of the message: the places are shared between people. */
  owner: string;
}

/** Makes messages understandable before a model sees them: names, quotes, forwarded messages, files. */
export class MessagePreparer {
  readonly #bots: ReadonlyMap<string, Bot>;
  readonly #store: SessionStore;
  readonly #blobs: BlobStore;
  readonly #lookups: LookupCache;
  readonly #clock: Clock;
  readonly #extractor: TextExtractor;
  readonly #limits: LarklineConfig["limits"];
  readonly #transcription: Transcription | undefined;
  readonly #slots = createSlots(filesInProcess);

  constructor(
    bots: ReadonlyMap<string, Bot>,
    {
      store,
      blobs,
      lookups,
      clock,
    }: { store: SessionStore; blobs: BlobStore; lookups: LookupCache; clock: Clock },
    limits: LarklineConfig["limits"],
    {
      extractor,
      transcription,
    }: { extractor: TextExtractor; transcription?: Transcription | undefined },
  ) {
    this.#bots = bots;
    this.#store = store;
    this.#blobs = blobs;
    this.#lookups = lookups;
    this.#clock = clock;
    this.#limits = limits;
    this.#extractor = extractor;
    this.#transcription = transcription;
  }

  /** Fetches what the message refers to. Never rejects: the message names each thing that could not be fetched. */
  async prepare(message: InboundMessage, signal: AbortSignal): Promise<InboundMessage> {
    // From here on the parts hold more than the person's own words. Those of a task are a model's: it brings its own.
    const own = message.parts.flatMap((part) =>
      part.type === "text" ? addressesIn(part.text) : [],
    );
    const { addresses = own } = message;
    const { attachments = [], ...others } = message.references ?? {};
    const refers = attachments.length > 0 || Object.values(others).some((id) => id !== undefined);
    const foreign = refers || message.parts.some(({ type }) => type !== "text");
    const facts = { addresses: [...new Set(addresses)], ...(foreign ? { foreign } : {}) };
    const bot = this.#bots.get(message.app);
    if (bot === undefined || message.reply.channel === "none") return { ...message, ...facts };
    try {
      return { ...(await this.#fetchAll(message, bot, signal)), ...facts };
    } catch (error) {
      bot.log.error({ error, session: message.session }, "message not prepared");
      return { ...message, ...facts };
    }
  }

  /**
   * What people have said in a group since the last message that was for the bot, of a day at most: `most` messages, 8 KB.
   * Never rejects: without the right to read the group there is nothing.
   */
  async overheard(
    { app, reply, chatType, createdAtMs, session }: InboundMessage,
    { most, history }: { most: number; history: readonly Message[] },
    signal: AbortSignal,
  ): Promise<UserMessage[]> {
    const bot = this.#bots.get(app);
    if (bot === undefined || reply.channel === "none" || chatType !== "group") return [];
    if (reply.object !== undefined) return []; // its message says what was written there
    const patience = { signal: deadline(this.#clock, saidPatienceMs, signal) };
    const times = history.flatMap((said) =>
      said.role === "user" && said.atMs !== undefined ? [said.atMs] : [],
    );
    const { chatId, messageId, inThread } = reply;
    const place = inThread && messageId !== "" ? { chatId, threadOf: messageId } : { chatId };
    const afterMs = Math.max(...times, createdAtMs - saidWithinMs);
    const time = { afterMs, before: { messageId, createdAtMs }, sinceOwn: times.length === 0 };
    try {
      const said = await bot.api.history.said({ ...place, ...time, most }, patience);
      const people = [...new Set(said.map(({ senderId }) => senderId))];
      const names = await this.#names(app, people, { bot, signal, owner: "" });
      return newestOf(
        said.map((one) => overheard(one.senderId, names.get(one.senderId), wordsOf(one))),
      );
    } catch (error) {
      bot.log.warn({ error, session }, "what was said in the group before was not read");
      return [];
    }
  }

  async #fetchAll(message: InboundMessage, bot: Bot, signal: AbortSignal): Promise<InboundMessage> {
    const { references, ...rest } = message;
    if (references === undefined && !needsName(message)) return message; // most messages
    const owner = `${message.app} ${message.sender.id}`;
    const fetching = {
      bot,
      signal: deadline(this.#clock, this.#limits.attachmentTimeoutMs, signal),
      owner,
    };
    const [name, parts] = await Promise.all([
      this.#nameFor(message, fetching),
      this.#content(message, fetching),
    ]);
    return {
      ...rest,
      parts: references === undefined ? message.parts : parts,
      sender: name === undefined ? message.sender : { ...message.sender, name },
    };
  }

  async #nameFor(message: InboundMessage, fetching: Fetching): Promise<string | undefined> {
    if (!needsName(message)) return undefined;
    const { app, sender } = message;
    return (await this.#names(app, [sender.id], fetching)).get(sender.id);
  }

  async #names(
    app: string,
    ids: readonly string[],
    { bot, signal }: Fetching,
  ): Promise<ReadonlyMap<string, string>> {
    const lookups = this.#lookups;
    const keyOf = (id: string): string => `name:${app}:${id}`;
    try {
      const cached = await Promise.all(
        ids.map(async (id) => [id, await lookups.get(keyOf(id))] as const),
      );
      const unknown = cached.flatMap(([id, name]) => (name === undefined ? [id] : []));
      const patience = deadline(this.#clock, namePatienceMs, signal);
      const asked =
        unknown.length === 0
          ? new Map<string, string>()
          : await bot.api.userNames(unknown, { signal: patience });
      // An empty name is remembered too: asking again would not help.
      await Promise.all(
        unknown.map(async (id) => await lookups.set(keyOf(id), asked.get(id) ?? "", nameKeptMs)),
      );
      const names = cached.map(([id, name]) => [id, name ?? asked.get(id) ?? ""] as const);
      return new Map(names.filter(([, name]) => name !== ""));
    } catch (error) {
      bot.log.warn({ error }, "names of senders unknown");
      return new Map();
    }
  }

  async #content(message: InboundMessage, fetching: Fetching): Promise<UserPart[]> {
    const { attachments = [], quotedId, threadRootId, forwardedId } = message.references ?? {};
    const [quoted, root, forwarded, files] = await Promise.all([
      this.#quote("quoted message", quotedId, fetching),
      this.#quote(
        "first message of this thread",
        threadRootId === quotedId ? undefined : threadRootId,
        fetching,
      ),
      this.#forwarded(forwardedId, fetching),
      this.#files(attachments.slice(0, maxAttachments), fetching),
    ]);
    return [...root, ...quoted, ...message.parts, ...forwarded, ...files];
  }

  /** What another message says, as a part of its own, with its files. */
  async #quote(
    what: string,
    messageId: string | undefined,
    fetching: Fetching,
  ): Promise<UserPart[]> {
    if (messageId === undefined) return [];
    const fetched = await this.#fetch(messageId, fetching);
    if (typeof fetched === "string") return [textPart(`[The ${what} cannot be read: ${fetched}]`)];
    const [first] = fetched;
    if (first === undefined || first.deleted) return [textPart(`[The ${what} was deleted]`)];
    const { text: shown, attachments, forwarded } = contentOf(first);
    const bundle = forwarded ? await this.#bundled(fetched, messageId, fetching) : undefined;
    const text = (await this.#ownAnswer(first, fetching)) ?? shown;
    const files = await this.#files(attachments.slice(0, maxQuotedFiles), fetching);
    return [textPart(`[The ${what} says:\n${quotedText(bundle ?? text)}\n]\n`), ...files];
  }

  async #forwarded(messageId: string | undefined, fetching: Fetching): Promise<UserPart[]> {
    if (messageId === undefined) return [];
    const fetched = await this.#fetch(messageId, fetching);
    if (typeof fetched === "string") {
      return [textPart(`\n[The forwarded messages cannot be read: ${fetched}]`)];
    }
    const lines = await this.#bundled(fetched, messageId, fetching);
    // Their files cannot be downloaded ("Get message resources", 234043).
    return [textPart(`\n[Forwarded messages, without their files:\n${quotedText(lines)}\n]`)];
  }

  /** The messages of a forwarded bundle, one after the other, with the names of who wrote them. */
  async #bundled(
    fetched: readonly FetchedMessage[],
    messageId: string,
    fetching: Fetching,
  ): Promise<string> {
    const all = fetched.filter(({ upperMessageId }) => upperMessageId === messageId);
    const children = all.slice(0, maxForwarded);
    const people = children.flatMap(({ senderType, senderId }) =>
      senderType === "user" ? [senderId] : [],
    );
    const names = await this.#names(fetching.bot.app, [...new Set(people)], fetching);
    const answers = await Promise.all(
      children.map(async (child) => await this.#ownAnswer(child, fetching)),
    );
    const lines = children.map((child, at) => {
      const name =
        speakerName(names.get(child.senderId) ?? "") ||
        (child.senderType === "app" ? "bot" : "a person");
      return `${name}: ${underSpeaker(answers[at] ?? contentOf(child).text)}`;
    });
    if (lines.length === 0) return "[nothing that the platform shows]";
    const left = all.length - children.length;
    return [...lines, ...(left === 0 ? [] : [`[${left} further messages were left out]`])].join(
      "\n",
    );
  }

  /** What the bot has answered in that message, as it is stored; undefined: it shows no answer of the bot, or an old one. */
  async #ownAnswer(
    { senderType, senderId, messageId }: FetchedMessage,
    { bot }: Fetching,
  ): Promise<string | undefined> {
    if (senderType !== "app" || senderId !== bot.app) return undefined;
    try {
      const turn = await this.#lookups.get(shownKeyOf(bot.app, messageId));
      if (turn === undefined) return undefined;
      return await this.#store.answerTo(
        sessionOfRun({ turn }),
        Number(turn.slice(turn.lastIndexOf("-") + 1)),
      );
    } catch (error) {
      bot.log.warn({ error, messageId }, "an answer that was referred to was not found");
      return undefined;
    }
  }

  /** The messages, or in words why there are none. */
  async #fetch(messageId: string, { bot, signal }: Fetching): Promise<FetchedMessage[] | string> {
    try {
      return await bot.api.messages.fetch(messageId, { signal });
    } catch (error) {
      bot.log.warn({ error, messageId }, "a message that was referred to was not fetched");
      return "the platform does not show it";
    }
  }

  async #files(attachments: readonly Attachment[], fetching: Fetching): Promise<UserPart[]> {
    const parts: UserPart[] = [];
    for (let at = 0; at < attachments.length; at += filesAtOnce) {
      const some = attachments.slice(at, at + filesAtOnce);
      parts.push(
        ...(await Promise.all(some.map(async (file) => await this.#file(file, fetching)))),
      );
    }
    return parts;
  }

  async #file(attachment: Attachment, fetching: Fetching): Promise<UserPart> {
    if (attachment.kind === "audio" && this.#transcription !== undefined) {
      return await this.#voice(attachment, this.#transcription, fetching);
    }
    if (attachment.kind === "audio" || attachment.kind === "video") {
      return filePart(attachment, "unsupported", {
        detail: `${attachment.kind} cannot be played or transcribed here`,
      });
    }
    const isImage = attachment.kind === "image";
    const maxBytes = this.#limits.attachmentBytes;
    const { messageId, key } = attachment;
    const { bot, signal, owner } = fetching;
    try {
      const release = await this.#slots.take(signal, owner);
      try {
        const type = isImage ? "image" : "file";
        const file = await bot.api.files.download({ messageId, key, type, maxBytes }, { signal });
        return isImage
          ? await this.#image(attachment, file.bytes, signal)
          : await this.#document(attachment, file, fetching);
      } finally {
        release();
      }
    } catch (error) {
      bot.log.warn({ error, messageId }, "attachment not fetched");
      return unfetched(attachment, maxBytes, error);
    }
  }

  /** What is said in a voice message, in the words of another model: a mistake is likely, so that it is called one. */
  async #voice(
    attachment: Attachment,
    { maxBytes, ...access }: Transcription,
    { bot, signal, owner }: Fetching,
  ): Promise<UserPart> {
    const { messageId, key } = attachment;
    try {
      const release = await this.#slots.take(signal, owner);
      try {
        const { bytes } = await bot.api.files.download(
          { messageId, key, type: "file", maxBytes },
          { signal },
        );
        // The platform's format of voice messages: Opus in Ogg ("Upload a file").
        const recording = { bytes, name: "voice.ogg", mediaType: "audio/ogg" };
        const said = await transcribe(access, recording, signal);
        if (said === "") return filePart(attachment, "failed", { detail: "nothing is said in it" });
        return textPart(
          `[What is said in the voice message, written down by a model:\n${quotedText(said)}\n]`,
        );
      } finally {
        release();
      }
    } catch (error) {
      if (isKind(error, "too_large")) return tooLarge(attachment, maxBytes);
      bot.log.warn({ error, messageId }, "voice message not written down");
      return filePart(attachment, "failed", {
        detail: "what is said in it could not be written down",
      });
    }
  }

  async #image(attachment: Attachment, sent: Buffer, signal: AbortSignal): Promise<UserPart> {
    const type = imageTypeOf(sent);
    if (type === undefined) {
      const detail = "only PNG, JPEG, GIF and WebP images can be seen";
      return filePart(attachment, "unsupported", { bytes: sent.length, detail });
    }
    const isLarge = sent.length > pictureBounds.maxBytes;
    const scaled = isLarge ? await this.#extractor.scale(sent, pictureBounds, signal) : undefined;
    if (isLarge && scaled === undefined) return tooLarge(attachment, pictureBounds.maxBytes);
    const bytes = scaled === undefined ? sent : Buffer.from(scaled.data, "base64");
    const mediaType = scaled?.mediaType ?? type;
    const blobId = await this.#blobs.put(bytes, { mediaType });
    return { type: "image", source: { sourceType: "blob", blobId, mediaType } };
  }

  async #document(
    attachment: Attachment,
    { bytes, mediaType, fileName }: { bytes: Buffer; mediaType: string; fileName?: string },
    { signal, owner }: Fetching,
  ): Promise<UserPart> {
    const name = attachment.name ?? fileName ?? "file";
    const read = await this.#extractor.extract({ bytes, name, mediaType }, signal, owner);
    const facts = { name, mediaType: read.mediaType, bytes: bytes.length };
    if (read.state !== "ready") {
      return filePart(attachment, read.state, { ...facts, detail: read.detail });
    }
    const text = Buffer.from(read.text, "utf8");
    const blobId = await this.#blobs.put(text, { mediaType: "text/plain; charset=utf-8", name });
    const detail = detailOf(read);
    return filePart(attachment, "ready", {
      ...facts,
      blobId,
      ...(detail === "" ? {} : { detail }),
    });
  }
}

/** Whether the name of the writer is to be looked up. Only groups show names: elsewhere everybody knows who writes. */
function needsName({ chatType, sender }: InboundMessage): boolean {
  return chatType === "group" && sender.name === undefined && sender.id !== "";
}

function isKind(error: unknown, kind: string): boolean {
  return error instanceof Error && "kind" in error && error.kind === kind;
}

function unfetched(attachment: Attachment, maxBytes: number, error: unknown): FilePart {
  if (isKind(error, "too_large")) return tooLarge(attachment, maxBytes);
  return filePart(attachment, "failed", { detail: "it could not be downloaded" });
}

function tooLarge(attachment: Attachment, maxBytes: number): FilePart {
  const megabytes = Math.floor(maxBytes / 100_000) / 10;
  return filePart(attachment, "too_large", { detail: `it has more than ${megabytes} MB` });
}

function detailOf({ pages, truncated }: { pages?: number; truncated: boolean }): string {
  const parts = [
    pages === undefined ? "" : `${pages} pages`,
    truncated ? "only the beginning was read" : "",
  ];
  return parts.filter((part) => part !== "").join(", ");
}

function wordsOf(message: SaidMessage): string {
  return cut(contentOf(message).text, maxSaidCharacters);
}

/** The last of them that have 8 KB together. */
function newestOf(said: readonly UserMessage[]): UserMessage[] {
  let bytes = 0;
  const fits = (one: UserMessage): boolean =>
    (bytes += Buffer.byteLength(JSON.stringify(one.content))) <= maxSaidBytes;
  const tooMany = said.findLastIndex((one) => !fits(one));
  return said.slice(tooMany + 1);
}

function contentOf({ messageId, messageType, content, mentions }: Omit<SaidMessage, "senderId">) {
  return readContent({ messageId, messageType, content, mentions, botKey: undefined });
}

/** Cut to size; no line of it looks like the end of the quote. */
function quotedText(text: string): string {
  return cut(text.replaceAll(lineBreak, "\n").replaceAll(/^\]/gm, " ]"));
}

function cut(text: string, most = maxQuotedCharacters): string {
  if (text.length <= most) return text;
  // Half of a character would make the whole request unreadable for some vendors.
  const whole = text.slice(0, most).replace(/[\uD800-\uDBFF]$/, "");
  return `${whole}… (cut off)`;
}

function textPart(text: string): TextPart {
  return { type: "text", text };
}

function filePart(
  attachment: Attachment,
  state: AttachmentState,
  facts: Partial<FilePart> = {},
): FilePart {
  return {
    type: "file",
    name: attachment.name ?? attachment.kind,
    mediaType: "",
    bytes: 0,
    state,
    ...facts,
  };
}

// Messages that wait behind the one being answered.

/** Waiting messages that are looked at. */
const waitingAtOnce = 20;

/** The messages that wait behind one, as they would join its turn: up to the first that another agent is to answer. */
export async function messagesToJoin(
  { store }: { readonly store: SessionStore },
  { session, sender, agent }: InboundMessage,
): Promise<QueuedMessage[]> {
  const queued = await store.waiting(session, waitingAtOnce);
  const other = queued.findIndex(({ message }) => message.agent !== agent);
  return (other === -1 ? queued : queued.slice(0, other)).map(({ seq, message }) => ({
    seq,
    message: readyToJoin(message, sender),
  }));
}

/** A message as it joins a turn of that person, whose name is known and whose thread the model has seen. */
function readyToJoin(
  message: InboundMessage,
  { id, name }: InboundMessage["sender"],
): InboundMessage {
  const known =
    message.sender.id === id && name !== undefined ? { ...message, sender: { id, name } } : message;
  return withoutThreadRoot(known);
}

/** The model has seen the beginning of the thread already. */
export function withoutThreadRoot(message: InboundMessage): InboundMessage {
  if (message.references?.threadRootId === undefined) return message;
  const { references, ...rest } = message;
  const { threadRootId: _threadRootId, ...others } = references;
  return Object.keys(others).length === 0 ? rest : { ...rest, references: others };
}

/** Whether a waiting message takes this one back. */
export async function isSuperseded(
  { store }: { readonly store: SessionStore },
  message: InboundMessage,
): Promise<boolean> {
  const waiting = await store.waiting(message.session, waitingAtOnce);
  return waiting.some((later) => supersedes(later.message, message));
}

/** A message that came late and waits now was written before: it takes nothing back. */
function supersedes(
  later: InboundMessage,
  { chatType, sender, createdAtMs }: InboundMessage,
): boolean {
  return later.createdAtMs >= createdAtMs && (chatType === "p2p" || later.sender.id === sender.id);
}
