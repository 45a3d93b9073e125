import { FileAnswer } from "../faults.ts";
import type { Platform } from "../platform.ts";
import type { SimSubscriptions } from "./subscriptions.ts";
import type { WorkWorld } from "./world.ts";
import type { ApiRoute, ApiCallContext } from "../api-route.ts";
import {
  newId,
  type OpenRoute,
  pageOf,
  randomHex,
  success,
  PlatformError,
  stringField,
  type JsonObject,
} from "../open-api.ts";

// Mailboxes ("Mail overview"). Mails go to people of the company at once, and to others nowhere.

interface SimMailFile {
  name: string;
  base64: string;
}

interface SimMail {
  id: string;
  /** Open id of the person in whose mailbox it lies. */
  owner: string;
  folder: "INBOX" | "SENT";
  from: string;
  to: string[];
  cc: string[];
  bcc: string[];
  subject: string;
  text: string;
  files: SimMailFile[];
  at: number;
  unread: boolean;
}

interface SimDraft {
  id: string;
  owner: string;
  to: string[];
  cc: string[];
  bcc: string[];
  subject: string;
  text: string;
  files: SimMailFile[];
  /** Once it was sent. */
  messageId?: string;
}

export interface MailControls {
  readonly mails: ReadonlyMap<string, SimMail>;
  readonly drafts: ReadonlyMap<string, SimDraft>;
  addressOf(openId: string): string;
  /** A mail that has arrived; apps whom its owner has subscribed get the event. */
  addMail(mail: {
    to: string;
    from: string;
    subject: string;
    text: string;
    files?: readonly SimMailFile[];
  }): SimMail;
  /** A draft that the person has begun in the client. */
  addDraft(draft: {
    owner: string;
    to: readonly string[];
    subject: string;
    text: string;
  }): SimDraft;
  /** The person changes a draft in the client. */
  changeDraft(id: string, change: Partial<Pick<SimDraft, "to" | "subject" | "text">>): void;
  /** The next writes of the person meet another one of theirs that often. */
  lockMail(openId: string, times: number): void;
}

const reading = ["mail:user_mailbox.message:readonly", "mail:user_mailbox.message:modify"];
const writing = ["mail:user_mailbox.message:modify"];

export class SimMails implements MailControls {
  readonly mails = new Map<string, SimMail>();
  readonly drafts = new Map<string, SimDraft>();
  readonly #world: WorkWorld;
  readonly #locks = new Map<string, number>();
  readonly #downloads = new Map<string, { file: SimMailFile; left: number; until: number }>();

  readonly #subscriptions: SimSubscriptions;

  constructor(world: WorkWorld, subscriptions: SimSubscriptions) {
    this.#world = world;
    this.#subscriptions = subscriptions;
  }

  addressOf(openId: string): string {
    return `${openId.slice(-12)}@example.com`;
  }

  addMail({ to, files = [], ...mail }: Parameters<MailControls["addMail"]>[0]): SimMail {
    const address = [this.addressOf(to)];
    return this.#kept({ ...mail, owner: to, folder: "INBOX", to: address, files: [...files] });
  }

  addDraft({ to, ...draft }: Parameters<MailControls["addDraft"]>[0]): SimDraft {
    const kept = { id: newId("draft"), to: [...to], cc: [], bcc: [], files: [], ...draft };
    this.drafts.set(kept.id, kept);
    return kept;
  }

  changeDraft(id: string, change: Partial<Pick<SimDraft, "to" | "subject" | "text">>): void {
    const draft = this.drafts.get(id);
    if (draft !== undefined) this.drafts.set(id, { ...draft, ...change });
  }

  lockMail(openId: string, times: number): void {
    this.#locks.set(openId, times);
  }

  routes(platform: Platform): ApiRoute[] {
    const path = "/open-apis/mail/v1/user_mailboxes/:mailbox";
    return [
      {
        method: "GET",
        path: `${path}/messages`,
        personScopes: reading,
        limits: { perMinute: 100 },
        handle: (call) => {
          const owner = ownerOf(call);
          const folder = call.query.get("folder_id") ?? "INBOX";
          const unread = call.query.get("only_unread") === "true";
          const found = [...this.mails.values()]
            .filter((mail) => mail.owner === owner && mail.folder === folder)
            .filter((mail) => !unread || mail.unread)
            .toReversed();
          const { items, ...page } = pageOf(found, call.query, 20);
          return success({ ...page, items: items.map(({ id }) => id) });
        },
      },
      {
        method: "GET",
        path: `${path}/messages/:message_id`,
        personScopes: reading,
        limits: { perMinute: 100 },
        handle: (call) => {
          const mail = this.mails.get(call.params.message_id ?? "");
          if (mail?.owner !== ownerOf(call)) throw new PlatformError(1234008, "message not found");
          return success({ message: { ...viewOf(mail), message_id: mail.id } });
        },
      },
      {
        method: "GET",
        path: `${path}/messages/:message_id/attachments/download_url`,
        personScopes: ["mail:user_mailbox.message.body:read"],
        limits: { perSecond: 1 },
        handle: (call) => this.#links(call),
      },
      {
        method: "GET",
        path: `${path}/drafts`,
        personScopes: writing,
        handle: (call) => {
          const owner = ownerOf(call);
          const found = [...this.drafts.values()]
            .filter((draft) => draft.owner === owner && draft.messageId === undefined)
            .toReversed();
          const { items, ...page } = pageOf(found, call.query, 20);
          return success({ ...page, items: items.map(({ id }) => ({ id })) });
        },
      },
      {
        method: "POST",
        path: `${path}/drafts`,
        personScopes: writing,
        limits: { perSecond: 5 },
        handle: (call) => {
          this.#passLock(ownerOf(call));
          const raw = Buffer.from(stringField(call.body, "raw"), "base64url").toString();
          const draft = { id: newId("draft"), owner: ownerOf(call), ...parsed(raw) };
          this.drafts.set(draft.id, draft);
          this.#world.record(call, "mail.draft", `${draft.subject} ${draft.text}`);
          return success({ draft: { id: draft.id } });
        },
      },
      {
        method: "GET",
        path: `${path}/drafts/:draft_id`,
        personScopes: writing,
        handle: (call) => {
          const draft = this.#draft(call);
          return success({ draft: { id: draft.id, message: viewOf(draft) } });
        },
      },
      {
        method: "POST",
        path: `${path}/drafts/:draft_id/send`,
        personScopes: ["mail:user_mailbox.message:send"],
        limits: { perMinute: 20 },
        handle: (call) => this.#send(platform, call),
      },
    ];
  }

  /** Where the files of mails are fetched, without a token. */
  openRoutes(): OpenRoute[] {
    return [
      {
        method: "GET",
        path: "/callback/attachments/:code",
        handle: ({ params }) => {
          const code = params["code"] ?? "";
          const link = this.#downloads.get(code);
          if (link === undefined || link.left === 0 || this.#world.clock.now() > link.until) {
            throw new PlatformError(1061004, "the link has expired", { status: 403 });
          }
          link.left -= 1;
          const bytes = Buffer.from(link.file.base64, "base64");
          const mediaType = "application/octet-stream";
          return new FileAnswer({ bytes, mediaType, name: link.file.name });
        },
      },
    ];
  }

  /** Links of files, each good for two downloads within two hours ("Get attachment download links"). */
  #links(call: ApiCallContext): JsonObject {
    const mail = this.mails.get(call.params.message_id ?? "");
    if (mail?.owner !== ownerOf(call)) throw new PlatformError(1234008, "message not found");
    const wanted = call.query.getAll("attachment_ids");
    if (wanted.length === 0 || wanted.length > 20) {
      throw new PlatformError(1230001, "param invalid");
    }
    const known = new Map(mail.files.map((file, at) => [fileIdOf(mail, at), file]));
    const download_urls = wanted.flatMap((id) => {
      const file = known.get(id);
      if (file === undefined) return [];
      const code = randomHex(32);
      const until = this.#world.clock.now() + 2 * 3_600_000;
      this.#downloads.set(code, { file, left: 2, until });
      return [
        { attachment_id: id, download_url: `http://${call.host}/callback/attachments/${code}` },
      ];
    });
    return success({ download_urls, failed_ids: wanted.filter((id) => !known.has(id)) });
  }

  #passLock(owner: string): void {
    const left = this.#locks.get(owner) ?? 0;
    if (left <= 0) return;
    this.#locks.set(owner, left - 1);
    throw new PlatformError(1236006, "mailbox is busy");
  }

  /** A draft that was sent is gone, and known as sent. */
  #draft(call: ApiCallContext): SimDraft {
    const draft = this.drafts.get(call.params.draft_id ?? "");
    if (draft?.owner !== ownerOf(call)) throw new PlatformError(1234050, "draft not found");
    return draft;
  }

  #send(platform: Platform, call: ApiCallContext): JsonObject {
    const draft = this.#draft(call);
    if (draft.messageId !== undefined) {
      throw new PlatformError(1236005, "already sent", { status: 409 });
    }
    this.#passLock(draft.owner);
    const from = this.addressOf(draft.owner);
    const { to, cc, bcc, subject, text, files } = draft;
    for (const { openId } of platform.directory.users.values()) {
      if (![...to, ...cc, ...bcc].includes(this.addressOf(openId))) continue;
      this.#kept({ owner: openId, folder: "INBOX", from, to, cc, subject, text, files });
    }
    const sent = this.#kept({
      owner: draft.owner,
      folder: "SENT",
      from,
      to,
      cc,
      bcc,
      subject,
      text,
      files,
    });
    this.drafts.set(draft.id, { ...draft, messageId: sent.id });
    this.#world.record(call, "mail.send", `${subject} ${text}`);
    return success({ message_id: sent.id, thread_id: sent.id });
  }

  #kept(
    mail: Pick<SimMail, "owner" | "folder" | "from" | "to" | "subject" | "text"> & Partial<SimMail>,
  ): SimMail {
    const unread = mail.folder === "INBOX";
    const kept = {
      id: newId("mail"),
      cc: [],
      bcc: [],
      files: [],
      at: this.#world.clock.now(),
      unread,
      ...mail,
    };
    this.mails.set(kept.id, kept);
    if (kept.folder === "INBOX") {
      const event = {
        mail_address: this.addressOf(kept.owner),
        message_id: kept.id,
        mailbox_type: 1,
      };
      const type = "mail.user_mailbox.event.message_received_v1";
      void this.#subscriptions.announce(type, [kept.owner], event);
    }
    return kept;
  }
}

/** `me` is the mailbox of the person whose token it is; others are not theirs. */
function ownerOf({ params, person }: ApiCallContext): string {
  if (person === undefined || params.mailbox !== "me") {
    throw new PlatformError(1234017, "no permission", { status: 403 });
  }
  return person.openId;
}

function fileIdOf({ id }: { id: string }, at: number): string {
  return `${id}_${at}`;
}

function people(addresses: readonly string[]): JsonObject[] {
  return addresses.map((mail_address) => ({ mail_address, name: "" }));
}

function viewOf(mail: SimDraft | SimMail): JsonObject {
  return {
    subject: mail.subject,
    to: people(mail.to),
    cc: people(mail.cc),
    bcc: people(mail.bcc),
    body_plain_text: Buffer.from(mail.text).toString("base64url"),
    body_preview: mail.text.slice(0, 100),
    attachments: mail.files.map(({ name }, at) => ({
      id: fileIdOf(mail, at),
      filename: name,
      attachment_type: 1,
      is_inline: false,
    })),
    ...("from" in mail
      ? { head_from: { mail_address: mail.from, name: "" }, internal_date: String(mail.at) }
      : {}),
  };
}

/** A message in base64, with encoded words in its headers and, where it has several parts, files (RFC 5322, 2045, 2047). */
function parsed(mime: string): Pick<SimDraft, "to" | "cc" | "bcc" | "subject" | "text" | "files"> {
  const { headers, body } = partOf(mime);
  const addressesIn = (name: string): string[] =>
    (headers.get(name) ?? "").split(",").flatMap((one) => (one.trim() === "" ? [] : [one.trim()]));
  const boundary = /boundary="([^"]+)"/.exec(headers.get("content-type") ?? "")?.[1];
  const parts =
    boundary === undefined
      ? [{ headers, body }]
      : body
          .split(`--${boundary}`)
          .slice(1, -1)
          .map((part) => partOf(part.slice(2)));
  const [text, ...files] = parts;
  return {
    to: addressesIn("to"),
    cc: addressesIn("cc"),
    bcc: addressesIn("bcc"),
    subject: (headers.get("subject") ?? "")
      .replaceAll(/\?= =\?/g, "?==?")
      .replaceAll(/=\?utf-8\?b\?([^?]*)\?=/gi, (_, words: string) =>
        Buffer.from(words, "base64").toString(),
      ),
    text: Buffer.from(text?.body ?? "", "base64").toString(),
    files: files.map((part) => ({ name: fileNameIn(part.headers), base64: part.body })),
  };
}

/** Headers by their names in small letters, and the body; one in base64 without its line breaks. */
function partOf(mime: string): { headers: Map<string, string>; body: string } {
  const end = mime.indexOf("\r\n\r\n");
  const headers = new Map(
    mime
      .slice(0, end)
      .replaceAll(/\r\n[ \t]+/g, " ")
      .split("\r\n")
      .map((line) => {
        const at = line.indexOf(":");
        return [line.slice(0, at).toLowerCase(), line.slice(at + 1).trim()];
      }),
  );
  const body = mime.slice(end + 4);
  const isText = headers.get("content-type")?.startsWith("multipart/") === true;
  return { headers, body: isText ? body : body.replaceAll("\r\n", "") };
}

function fileNameIn(headers: ReadonlyMap<string, string>): string {
  const [, name = ""] =
    /filename\*=UTF-8''(\S+)/.exec(headers.get("content-disposition") ?? "") ?? [];
  return decodeURIComponent(name);
}
