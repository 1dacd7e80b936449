// A provider of OpenID Connect for the tests: npm's oidc-provider, with its own forms.
import { Provider } from 'oidc-provider';

const [port, redirect, home] = process.argv.slice(2);
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: 'pages',
    client_secret: 'a secret+of/the pages',
    redirect_uris: [redirect],
    post_logout_redirect_uris: [home],
    backchannel_logout_uri: `${home}sign-in/ended`,
    backchannel_logout_session_required: true,
  }, {
    client_id: 'robot',
    client_secret: 'robot',
    grant_types: ['client_credentials'],
    redirect_uris: [],
    response_types: [],
  }],
  features: {
    backchannelLogout: { enabled: true },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (context, resource) => ({
        audience: resource,
        scope: '',
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
  claims: { openid: ['sub'], profile: ['groups'] },
  findAccount: (context, id) => ({
    accountId: id,
    claims: () => ({ sub: id, groups: ['team', 'not a name'] }),
  }),
  // Its own dispatcher refuses addresses of this machine, where the pages are.
  fetch: (url, { dispatcher, ...options }) => globalThis.fetch(url, options),
  pkce: { required: () => true },
});
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
