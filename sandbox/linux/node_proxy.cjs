// Preloaded into every Node inside a sandbox (NODE_OPTIONS): teaches the fetch of those older
// than 22.21, which don't know NODE_USE_ENV_PROXY, to go out by the sandbox's proxy.
//
// It holds no policy and no secret: without it fetch reaches nothing, with it only the proxy.
// Nothing is loaded before a program needs it.  It is read by whatever Node a program brings,
// so its syntax is that of Node 8, the first that reads NODE_OPTIONS.
//
// fetch (WebSocket, EventSource, and the undici package too) goes by one dispatcher, which
// undici keeps on globalThis.  As undici is loaded it looks there, and where it finds none it
// makes its default agent and puts that there.  So we stand there first: whoever looks finds
// none, and what is put there next is replaced by one of the same class that goes by the
// proxy.  What a program sets itself comes later, and stays as it is.
'use strict';

const { HTTPS_PROXY, https_proxy, NO_PROXY, no_proxy } = process.env;
const url = https_proxy || HTTPS_PROXY;
const [major, minor] = process.versions.node.split('.').map(Number);
const knows = major >= 24 || (major === 22 && minor >= 21);

if (url && !knows) {
  const DISPATCHER = Symbol.for('undici.globalDispatcher.1');
  const CONNECT_MS = 10000; // undici's own limit for a connection, TLS included
  const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\])$/;
  // As they are now: tests replace them by clocks of their own.
  const { clearTimeout, queueMicrotask, setTimeout } = global;

  // NO_PROXY: `*`, or names, which cover those below them, each with a port or without.
  const listed = (no_proxy || NO_PROXY || '')
    .toLowerCase()
    .split(/[\s,]+/)
    .map((entry) => /^([^:]+|\[.+\])(?::(\d+))?$/.exec(entry))
    .filter(Boolean)
    .map(([, name, port]) => ({ name: name.replace(/^\*?\.?/, ''), port }));

  const isDirect = (origin) => {
    const { hostname, port, protocol } = new URL(origin);
    const number = port || (protocol === 'https:' ? '443' : '80');
    const covers = (name) => name === '' || hostname === name || hostname.endsWith(`.${name}`);
    return LOOPBACK.test(hostname) ||
      listed.some((entry) => (entry.port || number) === number && covers(entry.name));
  };

  const tunnel = (proxy, authority, callback) => {
    const headers = { host: authority };
    if (proxy.password) {
      const login = decodeURIComponent(`${proxy.username}:${proxy.password}`);
      headers['proxy-authorization'] = `Basic ${Buffer.from(login).toString('base64')}`;
    }
    const request = require('http').request({
      host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: authority, headers, agent: false,
    });
    request.once('error', callback);
    request.once('connect', (answer, socket, early) => {
      if (answer.statusCode === 200) {
        if (early.length > 0) socket.unshift(early);
        callback(null, socket);
        return;
      }
      socket.destroy();
      const said = `${answer.statusCode} ${answer.statusMessage}`;
      callback(Object.assign(new Error(`the proxy refused ${authority}: ${said}`), {
        code: 'ERR_PROXY_TUNNEL', statusCode: answer.statusCode,
      }));
    });
    request.end();
    return request;
  };

  const secured = (socket, hostname, servername, callback) => {
    const name = servername || (require('net').isIP(hostname) ? '' : hostname);
    const options = { socket, host: hostname, servername: name, ALPNProtocols: ['http/1.1'] };
    const made = require('tls').connect(options, () => callback(null, made));
    return made.once('error', callback);
  };

  // undici's connector: calls back once, with a connected socket for an origin.
  const connect = ({ hostname, port, protocol, servername }, callback) => {
    const secure = protocol === 'https:';
    const host = hostname.includes(':') ? `[${hostname}]` : hostname;
    const authority = `${host}:${port || (secure ? 443 : 80)}`;
    const proxy = new URL(url);
    let pending;
    const end = (error, socket) => {
      if (pending === undefined) return; // it came too late
      clearTimeout(timer);
      if (error) pending.on('error', () => {}).destroy(); // told already
      pending = undefined;
      callback(error, socket);
    };
    const timer = setTimeout(() => {
      const said = `${authority} took longer than ${CONNECT_MS} ms to connect`;
      end(Object.assign(new Error(said), { code: 'UND_ERR_CONNECT_TIMEOUT' }));
    }, CONNECT_MS);
    pending = tunnel(proxy, authority, (error, socket) => {
      if (error || !secure) end(error, socket);
      else if (pending === undefined) socket.destroy();
      else pending = secured(socket, hostname, servername, end);
    });
  };

  const byProxy = (agent) => {
    const made = new agent.constructor({ connect });
    const { dispatch } = made;
    made.dispatch = (options, handler) => isDirect(options.origin)
      ? agent.dispatch(options, handler)
      : dispatch.call(made, options, handler);
    return made;
  };

  // An agent takes no argument that it must have; a wrapper or a mock does.
  const isAgent = (value) => typeof value.dispatch === 'function' && value.constructor.length === 0;

  const replaceNext = () => {
    const { defineProperty } = Object;
    const restore = () => {
      if (Object.defineProperty === watching) Object.defineProperty = defineProperty;
    };
    const watching = (target, key, descriptor) => {
      if (target !== global || key !== DISPATCHER) return defineProperty(target, key, descriptor);
      restore();
      const { value } = descriptor;
      return defineProperty(target, key, isAgent(value) ? { ...descriptor, value: byProxy(value) } : descriptor);
    };
    Object.defineProperty = watching;
    queueMicrotask(restore); // it only looked
  };

  Object.defineProperty(global, DISPATCHER, {
    configurable: true,
    get() { replaceNext(); },
    set(value) {
      Object.defineProperty(global, DISPATCHER, { value, writable: true, configurable: true });
    },
  });
}
