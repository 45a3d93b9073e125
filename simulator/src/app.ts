import { isAppId, newId } from "./id.ts";

export type Transport = "webhook" | "websocket" | "auto";
/**
 * Which group messages an app is subscribed to: all of people, those of people that mention it, or also those of
 * other bots that mention it.
 */
export type GroupScope = "all" | "mentioned" | "mentioned_with_bots";

/** A bot application as its developer console describes it. */
export interface AppOptions {
  /** `cli_` and 16 hex digits. */
  appId: string;
  appSecret: string;
  /** With a key, webhook bodies are encrypted and signed. */
  encryptKey?: string;
  verificationToken?: string;
  webhookUrl?: string;
  name?: string;
  /** Default: one that all apps share. */
  tenantKey?: string;
  /** Default `auto`: a live long connection wins, else the webhook. */
  transport?: Transport;
  /** Default `all`. */
  groupScope?: GroupScope;
  /** Granted scopes, subscribed events and callbacks; default: all that the simulated console knows. */
  scopes?: readonly string[];
  events?: readonly string[];
  callbacks?: readonly string[];
}

/** The running state of an app. */
export interface SimApp {
  readonly appId: string;
  readonly appSecret: string;
  readonly encryptKey: string | undefined;
  readonly verificationToken: string;
  readonly name: string;
  readonly openId: string;
  readonly tenantKey: string;
  groupScope: GroupScope;
  webhookUrl: string | undefined;
  transport: Transport;
}

export function createApps(options: readonly AppOptions[]): Map<string, SimApp> {
  const tenantKey = newId("").slice(0, 16);
  const apps = new Map<string, SimApp>();
  for (const app of options) {
    if (!isAppId(app.appId)) throw new Error(`App id ${app.appId} is not of the form cli_ and 16 hex digits`);
    if (apps.has(app.appId)) throw new Error(`App ${app.appId} is configured twice`);
    apps.set(app.appId, simulatedApp(app, tenantKey));
  }
  return apps;
}

/** The state that an app begins with. */
export function simulatedApp(app: AppOptions, tenantKey: string): SimApp {
  return {
    appId: app.appId,
    appSecret: app.appSecret,
    encryptKey: app.encryptKey || undefined,
    verificationToken: app.verificationToken ?? "",
    name: app.name ?? "Larkline",
    openId: newId("ou_"),
    tenantKey: app.tenantKey ?? tenantKey,
    groupScope: app.groupScope ?? "all",
    webhookUrl: app.webhookUrl,
    transport: app.transport ?? "auto",
  };
}
