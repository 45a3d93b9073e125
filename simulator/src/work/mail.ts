import type { Platform } from "../platform.ts";
import type { SimSubscriptions } from "./subscriptions.ts";
import type { WorkWorld } from "./world.ts";
import type { ApiRoute, ApiCallContext } from "../api-route.ts";
import {
  newId,
  pageOf,
  success,
  PlatformError,
  stringField,
  type JsonObject,
} from "../open-api.ts";

// Mailboxes ("Mail overview"). Mails go to people of the company at once, and to others nowhere.

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
  /** Once it was sent. */
  messageId?: string;
}

export interface MailControls {
  readonly mails: ReadonlyMap<string, SimMail>;
  readonly drafts: ReadonlyMap<string, SimDraft>;
  addressOf(openId: string): string;
  /** A mail that has arrived; apps whom its owner has subscribed get the event. */
  addMail(mail: { to: string; from: string; subject: string; text: string }): SimMail;
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

  readonly #subscriptions: SimSubscriptions;

  constructor(world: WorkWorld, subscriptions: SimSubscriptions) {
    this.#world = world;
    this.#subscriptions = subscriptions;
  }

  addressOf(openId: string): string {
    return `${openId.slice(-12)}@example.com`;
  }

  addMail({ to, from, subject, text }: Parameters<MailControls["addMail"]>[0]): SimMail {
    const address = [this.addressOf(to)];
    return this.#kept({ owner: to, folder: "INBOX", from, to: address, subject, text });
  }

  addDraft({ to, ...draft }: Parameters<MailControls["addDraft"]>[0]): SimDraft {
    const kept = { id: newId("draft"), to: [...to], cc: [], bcc: [], ...draft };
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
    const { to, cc, bcc, subject, text } = draft;
    for (const { openId } of platform.directory.users.values()) {
      if (![...to, ...cc, ...bcc].includes(this.addressOf(openId))) continue;
      this.#kept({ owner: openId, folder: "INBOX", from, to, cc, subject, text });
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
    attachments: [],
    ...("from" in mail
      ? { head_from: { mail_address: mail.from, name: "" }, internal_date: String(mail.at) }
      : {}),
  };
}

/** A message of one part in base64, with encoded words in its headers (RFC 5322, RFC 2047). */
function parsed(mime: string): Pick<SimDraft, "to" | "cc" | "bcc" | "subject" | "text"> {
  const [head = "", body = ""] = mime.split("\r\n\r\n");
  const headers = new Map(
    head
      .replaceAll(/\r\n[ \t]+/g, " ")
      .split("\r\n")
      .map((line) => {
        const at = line.indexOf(":");
        return [line.slice(0, at).toLowerCase(), line.slice(at + 1).trim()];
      }),
  );
  const addressesIn = (name: string): string[] =>
    (headers.get(name) ?? "").split(",").flatMap((one) => (one.trim() === "" ? [] : [one.trim()]));
  return {
    to: addressesIn("to"),
    cc: addressesIn("cc"),
    bcc: addressesIn("bcc"),
    subject: (headers.get("subject") ?? "")
      .replaceAll(/\?= =\?/g, "?==?")
      .replaceAll(/=\?utf-8\?b\?([^?]*)\?=/gi, (_, text: string) =>
        Buffer.from(text, "base64").toString(),
      ),
    text: Buffer.from(body.replaceAll("\r\n", ""), "base64").toString(),
  };
}
